#pragma once

#include "absl/time/time.h"

namespace tessera {

// How long a test waits for what is bound to happen. It ends a hung test; a slow machine must not notice it.
inline constexpr absl::Duration kPatience = absl::Seconds(120);

}  // namespace tessera
