// Bearer tokens. Thread-safe: nothing here has state.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::services {

// Reads the token at `path`, or makes one of 32 random bytes in hex when there is no
// file, in a folder that exists. The file is 0600. PermissionDenied when others may
// read it; DataLoss when it holds no token. Errors name the file, never the token.
absl::StatusOr<std::string> LoadOrCreateToken(const std::string& path);

// In a time that depends on the lengths alone.
bool ConstantTimeEquals(std::string_view a, std::string_view b);

// Whether an Authorization header ("Bearer <token>", scheme in any case) carries
// `expected`. Unauthenticated says what is wrong. An empty `expected` never matches.
absl::Status CheckBearer(std::string_view authorization, std::string_view expected);

// The token in an Authorization header; empty when it has none.
std::string_view BearerToken(std::string_view authorization);

}  // namespace tessera::services
