// The worker's counting allocator as a library, so that a Python peer's tensor bytes are counted in the same
// way.
#include "worker/profile/memory_counter.h"

extern "C" {
void tessera_install_memory_counter() { tessera::worker::InstallMemoryCounter(); }
int64_t tessera_peak_tensor_bytes() { return tessera::worker::PeakTensorBytes(); }
}
