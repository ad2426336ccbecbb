// Whether the loss became worse when a plan came into force, beyond what its own noise explains.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::plan {

struct LossChange {
  double before = 0;  // mean of the losses of the window that ended with the change, nats
  double after = 0;   // of the first window after it
  double bound =
      0;  // the rise that counts as worse: the larger of kWorse of `before` and three standard errors
  bool worse() const { return after - before > bound; }
};

// Losses of a run by step, and the step at which its budgets changed last.
class LossRegression {
 public:
  static constexpr int kWindow = 20;      // losses on each side
  static constexpr double kWorse = 0.02;  // of the loss before

  // Steps that are not newer than the last are ignored; those of a run that begins again are not mixed with
  // them, see Restart.
  void Note(int64_t step, double loss);
  // A change came into force after `step`. A change before that was not judged yet is forgotten.
  void Change(int64_t step);
  // Steps begin again from a checkpoint: nothing is compared across.
  void Restart();
  // Once, as soon as both windows are full. None: no change, too few losses before it, or too early.
  std::optional<LossChange> Verdict();

 private:
  int64_t last_ = -1;
  int64_t changed_ = -1;  // -1: nothing to judge
  std::vector<double> before_, after_;
};

}  // namespace tessera::plan
