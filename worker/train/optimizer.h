// Optimizers over the state spans of a group. Pure functions of their arguments: holders with equal
// inputs get equal bits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

struct OptimizerOptions {
  std::string name = "adamw";  // or "sgd"
  double beta1 = 0.9;          // adamw
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double momentum = 0.9;  // sgd; 0 keeps no moment
  double weight_decay = 0.1;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Names of the moments it keeps for each element, as checkpoints call them.
  virtual std::vector<std::string> moments() const = 0;
  // step counts from 1. The gradients are divided by `divisor` on the way, in place.
  virtual void Step(GroupState& state, int64_t step, double learning_rate, double divisor) const = 0;
};

// InvalidArgument: no optimizer has the name.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerOptions& options);

// Decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2).
std::unique_ptr<Optimizer> MakeAdamW(const OptimizerOptions& options);
// g + weight_decay * w, then v = momentum * v + that, then w -= learning_rate * v.
std::unique_ptr<Optimizer> MakeSgd(const OptimizerOptions& options);

// The tensors of the spans whose `decay` is as given, as LibTorch's fused kernels take them; without those of
// which kept gradients alone are there.
struct SpanLists {
  std::vector<at::Tensor> parameters, gradients;
  std::vector<std::vector<at::Tensor>> moments;  // by moment
};
SpanLists ListSpans(const GroupState& state, bool decay);

}  // namespace tessera::worker
