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

}  // namespace tessera::services
