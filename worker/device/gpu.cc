#include "worker/device/gpu.h"

#include <dlfcn.h>
#include <torch/types.h>

#include "absl/strings/str_cat.h"

namespace tessera::worker {

absl::StatusOr<Gpu*> OpenGpuPlugin(const std::string& library) {
  const std::string name = library.empty() ? "libtessera_cuda.so" : library;
  // Its symbols stay its own: it has static libraries that this program has as well.
  void* const opened = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    return absl::NotFoundError(absl::StrCat("the CUDA plug-in can't be opened: ", ::dlerror()));
  }
  const auto entry = reinterpret_cast<GpuPluginEntry>(::dlsym(opened, kGpuPluginSymbol));
  if (entry == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is of another version of Tessera: it has no ", kGpuPluginSymbol));
  }
  return entry();
}

at::Tensor ToDevice(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  if (!tensor.is_cpu() || !device.is_cuda()) return tensor.to(device);
  // The allocator of page-locked memory keeps the copy until the device has read it.
  const at::Tensor locked = at::empty(tensor.sizes(), tensor.options().pinned_memory(true));
  locked.copy_(tensor);
  return locked.to(device, /*non_blocking=*/true);
}

}  // namespace tessera::worker
