// Which gradients meet whom: every held unit's gradient is summed over its holders
// while backward goes on. Gradients are of the SUM loss; dividing by the tokens the
// holders contributed (sdp.md: reference algorithm) is left to the optimizer.
//
// Lives on the trainer's thread, on which backward also runs the hooks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

struct ReducerOptions {
  // A unit larger than this is reduced in several pieces, cut between parameters.
  int64_t bucket_bytes = 4 << 20;
};

// Connects this rank to the other holders of its units, in the plan's order, which all ranks share.
// Waits for them: to be done before anything that takes ranks differently long.
absl::Status ConnectHolders(const plan::MaskPlan& plan, int rank, World* world);

class GradientReducer {
 public:
  // Connects the holder groups and installs a hook on every held parameter. `store` and `world` outlive it.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(UnitStore* store, World* world,
                                                                 const ReducerOptions& options);
  ~GradientReducer();  // takes the hooks away

  // Before each backward. tokens: this rank's targets in the micro-batch. first: a new step begins;
  // last: reductions may start.
  void BeginMicroStep(bool first, bool last, int64_t tokens);

  // After the last backward: starts what no hook started, waits for all. Then the
  // units' gradients hold the holders' sums. Unavailable when a peer is lost.
  absl::Status Finish();

  // After Finish. By position in store->units(): tokens contributed by the unit's holders, at least 1.
  double divisor(int position) const { return divisors_[position]; }
  // Sum over units this rank owns (is the lowest holder of) of the squared norm of the divided gradient.
  double OwnedSquaredNorm() const;

 private:
  class Hook;
  struct Bucket {
    int position = 0;  // in store->units()
    int64_t offset = 0;
    int64_t elements = 0;  // of the gradient tensor; the last bucket of a unit has the count too
    int lowest_parameter = 0;
    int parameters = 0;
    int missing = 0;  // parameters whose gradient has not come in this micro-step
    std::unique_ptr<Work> work;
  };
  struct Parameter {
    int position = -1;
    int bucket = -1;
    int64_t offset = 0;
    at::Tensor slot;      // flat view of the gradient
    bool filled = false;  // in this step; otherwise the slot holds the last step's values
    bool seen = false;    // in this micro-step
  };

  explicit GradientReducer(UnitStore* store) : store_(store) {}
  void CutIntoBuckets(int position, int64_t bucket_bytes);
  void Accept(int parameter, const at::Tensor& variable);
  void StartReady(bool all);

  UnitStore* store_;
  std::vector<Communicator*> groups_;  // by position
  std::vector<Bucket> buckets_;        // in the order of their start, the same on all ranks
  std::vector<Parameter> parameters_;  // by index of the shape
  std::vector<double> divisors_;
  size_t next_ = 0;  // first bucket not started
  bool last_ = false;
  int64_t tokens_ = 0;  // of this step so far
};

}  // namespace tessera::worker
