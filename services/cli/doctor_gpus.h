// What the doctor says of GPUs. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/cli/doctor.h"
#include "tessera/v1/node.pb.h"

namespace tessera::cli {

// devices: the driver's word, or why it says nothing. worker: what `tessera-worker gpus` printed; empty: it
// was not asked or gave no answer.
std::vector<Finding> GpuFindings(const absl::StatusOr<std::vector<v1::DeviceProfile>>& devices,
                                 const std::string& worker);

}  // namespace tessera::cli
