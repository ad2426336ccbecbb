// What the scheduler divides gradient budgets by: of every parameter, how large its second moments are and
// whether its gradient spikes. Each group is measured by its owner alone, so over the ranks every element
// counts once. Lives on the trainer's thread.
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
  std::vector<LayerStatistic> Measure() const;

 private:
  struct Series {
    int position = 0;
    size_t piece = 0;
    std::deque<double> squared;  // norms, newest last
  };
  const UnitStore* store_;
  std::vector<Series> series_;
};

}  // namespace tessera::worker
