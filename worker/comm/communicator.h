// Collectives between ranks. Two implementations: Gloo over c10d, and a loopback
// for one process. Nothing outside this folder includes c10d.
//
// A group's collectives must be called in the same order by all its members. One
// caller at a time per communicator; different communicators may run at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera::worker {

// A collective under way. The tensor must not be touched until Wait returned;
// it is kept alive by the work. Destroying an unfinished work abandons it.
class Work {
 public:
  virtual ~Work() = default;
  // Unavailable when a peer is gone or did not answer in time; names group and operation. For tensors of a
  // device the current stream waits, not the host: what is queued on it later sees the result, and a failure
  // may be told by a later collective.
  virtual absl::Status Wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;
  // The tensors are contiguous. Failures to start are reported by Wait.
  // In place over fp32, fp64, int64 or bf16. Every member gets the same bits.
  virtual std::unique_ptr<Work> AllReduceSum(at::Tensor tensor) = 0;
  // in [size * n], fp32 or bf16; out [n] is the sum of all members' n elements at rank * n.
  virtual std::unique_ptr<Work> ReduceScatterSum(at::Tensor in, at::Tensor out) = 0;
  // in [n], out [size * n], in rank order.
  virtual std::unique_ptr<Work> StartAllGather(at::Tensor in, at::Tensor out) = 0;
  virtual std::unique_ptr<Work> StartBroadcast(at::Tensor tensor, int root) = 0;  // root: within the group
  // in: to[i] elements for member i, one member behind the other; out: from[i] elements of member i. All are
  // of one type; what a member expects is what the other sends it.
  virtual std::unique_ptr<Work> StartExchange(at::Tensor in, std::vector<int64_t> to, at::Tensor out,
                                              std::vector<int64_t> from) = 0;
  virtual absl::Status Barrier() = 0;
  // Payload this rank sent so far, by the ring formula: all-reduce 2(k-1)/k, broadcast and reduce-scatter
  // (k-1)/k of the tensor's bytes (reduce-scatter: of the input's), all-gather k-1 times the input's;
  // exchange what is for others.
  virtual int64_t bytes_sent() const = 0;

  absl::Status AllGather(const at::Tensor& in, at::Tensor& out) { return StartAllGather(in, out)->Wait(); }
  absl::Status Broadcast(at::Tensor tensor, int root) {
    return StartBroadcast(std::move(tensor), root)->Wait();
  }
};

// What a group carries. The order of collectives in a group is the program's, which backward's hooks
// and the runners could not keep among each other: each has a connection of its own.
enum class Channel : uint8_t { kMain, kWeights };

// All ranks of a job and the groups among them.
class World {
 public:
  virtual ~World() = default;
  virtual Communicator& all() = 0;
  // The group of these world ranks (ascending; this rank among them), made on first use, which waits
  // for the other members: ranks that share several groups must ask for them in the same order.
  // Owned by the world. The group of all ranks on the main channel is all().
  virtual absl::StatusOr<Communicator*> Group(absl::Span<const int> ranks, Channel channel) = 0;
  absl::StatusOr<Communicator*> Group(absl::Span<const int> ranks) { return Group(ranks, Channel::kMain); }
  virtual int64_t bytes_sent() const = 0;  // of all groups
  // The collective this rank waits in, "all-reduce in group {0,1}"; empty: it computes. From any thread.
  virtual std::string waiting() const = 0;
};

// One process, no peers.
std::unique_ptr<World> MakeLoopbackWorld();

}  // namespace tessera::worker
