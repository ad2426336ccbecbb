// Who ends first when the machine's memory is used up.
#pragma once

namespace tessera::worker {

// Offers this process to the kernel's out-of-memory killer before any other: for work that can be
// asked for again. Without effect where the kernel does not allow it.
void OfferToOutOfMemoryKiller();

}  // namespace tessera::worker
