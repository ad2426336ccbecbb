// tessera-worker gpus: what the plug-in finds, as JSON.
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "worker/device/gpu_choice.h"
#include "worker/device/gpus_command.h"

namespace tessera::worker {

int RunGpus(int argc, char** argv) {
  if (argc > 1) {
    const bool help = std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0;
    std::fprintf(
        help ? stdout : stderr,
        "usage: tessera-worker gpus\n\nPrints the GPUs that this worker can compute on and the versions of "
        "driver, CUDA and NCCL,\nor in \"error\" why there is none.\n");
    return help ? 0 : 2;
  }
  nlohmann::ordered_json out;
  const absl::StatusOr<GpuInventory> inventory = FindGpus();
  if (!inventory.ok()) {
    out["error"] = std::string(inventory.status().message());
  } else {
    out["driver"] = inventory->driver;
    out["runtime"] = inventory->runtime;
    out["nccl"] = inventory->nccl;
    out["devices"] = nlohmann::ordered_json::array();
    for (const GpuDevice& device : inventory->devices) {
      out["devices"].push_back({{"index", device.index},
                                {"model", device.model},
                                {"bus_id", device.bus_id},
                                {"total_bytes", device.total_bytes},
                                {"capability", device.capability},
                                {"peers", device.peers}});
    }
  }
  std::printf("%s\n", out.dump(2).c_str());
  return 0;
}

}  // namespace tessera::worker
