// A World over NCCL, called directly. docs/decisions says why not through c10d.
//
// One parent communicator of all ranks; a group's is shrunk from it when it is first asked for, shares its
// resources and inherits its configuration. All collectives of a channel run on one stream beside the one
// that computes, in the order in which they were started, so that communicators with common ranks can't wait
// for each other crosswise as long as all ranks start them in one order.
//
// Wait makes the current stream wait, not the host: a failure may show at a later collective. Tensors are
// held by the work until then, which orders their memory without record_stream.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/nccl_rules.h"
#include "worker/comm/rendezvous_client.h"

namespace tessera::cuda {

// See worker/device/gpu.h. device: in use by this process; bus_id: its own on this machine.
absl::StatusOr<std::unique_ptr<worker::World>> MakeNcclWorld(const worker::NcclOptions& options, int device,
                                                             const std::string& bus_id,
                                                             worker::RendezvousClient* rendezvous,
                                                             std::unique_ptr<worker::World> host);

}  // namespace tessera::cuda
