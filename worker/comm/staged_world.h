// A World for tensors of a device over one that takes the host's alone (Gloo): each collective copies to the
// host, and its Wait copies back. Starting one waits for what the device has queued.
#pragma once

#include <memory>

#include "worker/comm/communicator.h"

namespace tessera::worker {

enum class Staged : uint8_t {
  kDeviceTensors,  // those of the host pass as they are
  kAll,            // for tests on machines without a device
};

std::unique_ptr<World> MakeStagedWorld(std::unique_ptr<World> host, Staged staged = Staged::kDeviceTensors);

}  // namespace tessera::worker
