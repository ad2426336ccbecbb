// NCCL without NCCL: what is decided before it is called, and what is made of its answers. Linked into every
// worker and tested without a device; worker/cuda calls the library.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tessera::worker {

struct NcclOptions {
  int rank = 0;
  int size = 1;
  std::string host;  // this machine's name, which tells equal bus addresses of two machines apart
  absl::Duration rendezvous_timeout = absl::Seconds(120);
  absl::Duration collective_timeout = absl::Seconds(300);  // one under way for longer has lost a peer
  // Communicators beside the world's, each with memory of the device.
  int most_groups = 32;
  // Thread blocks of a collective: as many multiprocessors as backward does without while it runs.
  int most_blocks = 16;
};

// Ranks of the world that are not in the group: what a communicator of the group is shrunk by.
std::vector<int> ExcludedRanks(int world_size, absl::Span<const int> group);

// NCCL takes one rank per device. devices: by rank, "host/bus id". FailedPrecondition names the first two
// ranks that share one, and what to do.
absl::Status CheckDistinctDevices(absl::Span<const std::string> devices);

// ResourceExhausted: one group more than NcclOptions::most_groups.
absl::Status CheckGroupCount(int groups, int most_groups);

// NCCL's number of the type: ncclDataType_t, which is part of its binary interface. InvalidArgument: it has
// none.
absl::StatusOr<int> NcclTypeOf(at::ScalarType type);

// Of a call's ncclResult_t: OK for success and for what is under way; Unavailable for what a lost peer
// causes, ResourceExhausted for memory, Internal for the rest. detail: NCCL's last error, may be empty.
absl::Status StatusOfNccl(int result, const std::string& operation, const std::string& detail);

// What this rank sends by the ring formula (Communicator::bytes_sent), bytes.
struct NcclTraffic {
  static int64_t AllReduce(int64_t bytes, int members) { return 2 * int64_t{members - 1} * bytes / members; }
  static int64_t ReduceScatter(int64_t input_bytes, int members) {
    return (members - 1) * input_bytes / members;
  }
  static int64_t AllGather(int64_t input_bytes, int members) { return (members - 1) * input_bytes; }
  static int64_t Broadcast(int64_t bytes, int members) { return (members - 1) * bytes / members; }
};

}  // namespace tessera::worker
