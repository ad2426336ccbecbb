// NVIDIA devices by NVML, loaded at run time: nothing is linked, and a machine without the library has no
// devices here.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/v1/node.pb.h"

namespace tessera::services {

// One profile per device: name "cuda:<index>", model, driver, total and free bytes, what the driver reserves
// where it says so, the PCI bus and its link, active NVLinks and the devices it reaches directly. What can't
// be had is 0, unknown; largest free block and fragmentation always are: only the allocator of a process
// knows them. NotFound: no such library. FailedPrecondition: it lacks a function, or does not start (no
// driver, no device allowed), with NVML's number.
absl::StatusOr<std::vector<v1::DeviceProfile>> ProfileNvidiaDevices(
    const std::string& library = "libnvidia-ml.so.1");

// The devices of a node that jobs may have, as CUDA_VISIBLE_DEVICES names them. visible: that variable in the
// scheduler's environment; null, not set: all that the driver lets it use, by number in the order of their
// buses (CUDA_DEVICE_ORDER=PCI_BUS_ID). Like CUDA it ends at the first number that no device has.
std::vector<std::string> VisibleGpus(const v1::NodeProfile& node, const char* visible);

}  // namespace tessera::services
