// What the scheduler divides gradient budgets by: of every parameter, how large its second moments are and
// whether its gradient spikes. Each group is measured by its owner alone, or each shard by its
// holder, so over the ranks every element counts once. Lives on the trainer's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "worker/parallel/gradient_reducer.h"
#include "worker/parallel/unit_store.h"
#include "worker/train/report_sink.h"

namespace tessera::worker {

class LayerStatistics {
 public:
  static constexpr int kWindow = 16;  // steps

  explicit LayerStatistics(const UnitStore* store) : store_(store) {}
  // After the sums of a step are there. Costs one pass over them: called for a window before Measure.
  void Note(const GradientReducer& reducer);
  // Costs one pass over the second moments that this rank owns.
  std::vector<LayerStatistic> Measure();
  // How far the layers have moved since: half the sum over what this rank owns of |share now - share then|,
  // of sum sqrt(v); 0 to 1. Costs as much as Measure. 0: nothing was measured, or nothing is owned.
  double Drift() const;

 private:
  struct Series {
    int position = 0;
    size_t piece = 0;
    std::deque<double> squared;  // norms, newest last
  };
  double RootSecondMoment(const Series& series) const;

  const UnitStore* store_;
  std::vector<double> measured_;  // by series: RootSecondMoment when it was measured last
  std::vector<Series> series_;
};

}  // namespace tessera::worker
