// Which gradients meet whom: every held unit's gradient is summed over its holders
// while backward goes on. Gradients are of the SUM loss; dividing by the tokens the
// holders contributed (sdp.md: reference algorithm) is left to the optimizer.
//
// Lives on the trainer's thread, on which backward also runs the hooks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

enum class WireType : uint8_t { kFloat, kBFloat16 };

struct ReducerOptions {
  // A group larger than this is reduced in several pieces, cut between parameters.
  int64_t bucket_bytes = 4 << 20;
  WireType wire = WireType::kFloat;  // what gradients are summed in on their way
};

// Connects this rank to the other holders of its units, in the plan's order, which all ranks share.
// Waits for them: to be done before anything that takes ranks differently long. weights: the channel
// of weights too, as sharding and streaming need it.
absl::Status ConnectHolders(const plan::MaskPlan& plan, int rank, World* world, bool weights = false);

class GradientReducer {
 public:
  // Installs a hook on every leaf of the store. `store` and `world` outlive it. A sharded store gets
  // a reducer that leaves each rank the sums of its shards.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(UnitStore* store, World* world,
                                                                 const ReducerOptions& options);
  virtual ~GradientReducer();  // takes the hooks away

  // Before each backward. tokens: this rank's targets in the micro-batch. first: a new step begins;
  // last: after it the sums are wanted.
  void BeginMicroStep(bool first, bool last, int64_t tokens);
  // Backward has left the block: a gradient of it that has not come is zero.
  virtual void LeaveBlock(int block) = 0;
  // After each backward: starts what no hook started. After the last one it waits for all; then the
  // states' gradients hold the holders' sums. Unavailable when a peer is lost.
  virtual absl::Status EndMicroStep() = 0;

  // After the last EndMicroStep. By position in store->held(): tokens contributed by the group's
  // holders, at least 1.
  double divisor(int position) const { return divisors_[position]; }
  // Of the divided gradients, counted once over all ranks.
  double OwnedSquaredNorm() const;

  // The seam between reducing and updating: where the sums are is the reducer's affair.
  // The holders' sums of a group, flat, as far as this rank has them.
  virtual at::Tensor Sum(int position) const;
  // Of one of the group's pieces (GroupState::pieces), as far as this rank has it; what was not summed is
  // left out.
  virtual at::Tensor SumOfPiece(int position, int piece) const;
  // Hands over a group's states with its gradients, in one or several parts with `spans` alone, and frees
  // whole gradients. Of what a part is not about, nothing changes.
  using Visitor = std::function<void(GroupState& part)>;
  virtual void Visit(int position, const Visitor& visitor);
  // Zero in the sum over all ranks, modulo 2^32, if all holders have summed the same elements.
  virtual uint32_t SelectionCheck() const { return 0; }
  // Share of the gradient elements of what this rank holds that are summed with others'.
  virtual double kept_ratio() const { return 1; }
  // Forgets what cannot be known to a run that is resumed here.
  virtual void Refresh() {}

 protected:
  GradientReducer(UnitStore* store, World* world) : store_(store), world_(world) {}
  // A fresh gradient, its rows outermost. Called by the hooks.
  virtual void Accept(int parameter, const at::Tensor& rows) = 0;
  virtual void OnBegin() = 0;
  absl::Status WaitForTokens();
  double TokensOf(const std::vector<int>& ranks) const;  // contributed by them, at least 1
  void Install();                                        // the last thing to do in Create

  UnitStore* store_;
  World* world_;
  bool first_ = false;
  bool last_ = false;

 private:
  class Hook;

  int64_t own_tokens_ = 0;  // of this step so far
  at::Tensor tokens_;       // [ranks]
  std::unique_ptr<Work> token_work_;
  std::vector<double> divisors_;
};

}  // namespace tessera::worker
