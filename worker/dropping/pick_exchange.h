// What the holders of a group have selected each for itself, brought together: every one sends its elements
// with their indices to all others, and adds up what comes in the order of the ranks, so that all have the
// same sums to the bit.
//
// Lives on the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/dropping/kept_pieces.h"
#include "worker/parallel/gradient_reducer.h"

namespace tessera::worker {

class PickExchange {
 public:
  // A piece that is `alone` and whose values are at `ring` [piece.room]: the first piece.kept of them.
  struct Part {
    KeptPiece* piece = nullptr;
    float* ring = nullptr;
  };
  // parts: of one group, the same on all its holders. Sends piece.kept * (4 + the wire's bytes) of each to
  // every other holder. With K of them in all and N holders it takes (N + 1) * K * (4 + the wire's bytes)
  // bytes of memory until Finish. `pieces`, `holders` and the ring outlive it.
  static std::unique_ptr<PickExchange> Start(KeptPieces* pieces, Communicator* holders, WireType wire,
                                             std::vector<Part> parts);
  ~PickExchange();  // waits

  // Waits. Then every piece's selection is what any holder has selected, and at its ring are the sums, zeros
  // behind them. Unavailable: a peer is lost.
  absl::Status Finish();

 private:
  PickExchange() = default;

  KeptPieces* pieces_ = nullptr;
  int ranks_ = 1;
  int64_t kept_ = 0;  // of all parts
  std::vector<Part> parts_;
  at::Tensor indices_, values_;               // [ranks, kept]
  std::vector<std::unique_ptr<Work>> works_;  // of both
};

}  // namespace tessera::worker
