// What the scheduler does in a job, for a study in one process: budgets of layers from the ranks' statistics,
// handed to all ranks as another plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "scheduler/plan/model_shape.h"
#include "worker/train/trainer.h"

namespace tessera::worker {

class StudyBudgets {
 public:
  // how: "root" in proportion to sum sqrt(v), "root_root" to its square root, "global": as many elements of
  // each layer as are above one second moment (of one rank that holds everything).
  StudyBudgets(const plan::ModelShape& shape, std::string how, double density, int ranks);
  ~StudyBudgets();
  static std::vector<int64_t> BySize(const plan::ModelShape& shape, double density);

  ReportSink* sink(int rank);
  TrainerSignals* signals(int rank) { return signals_[rank].get(); }
  void Watch(int rank, const UnitStore* store);
  int64_t published() const { return published_; }

 private:
  struct Sink;
  void Take(int rank, const std::vector<LayerStatistic>& layers);
  std::vector<int64_t> Divide(const std::vector<double>& roots) const;
  std::vector<int64_t> AboveOneThreshold() const;

  const plan::ModelShape& shape_;
  const std::string how_;
  const double density_;
  std::vector<std::unique_ptr<Sink>> sinks_;
  std::vector<std::unique_ptr<TrainerSignals>> signals_;
  absl::Mutex mutex_;
  std::vector<double> roots_ ABSL_GUARDED_BY(mutex_);
  int reported_ ABSL_GUARDED_BY(mutex_) = 0;
  const UnitStore* store_ = nullptr;  // of rank 0, on whose thread it is read
  int64_t published_ = 0;
};

}  // namespace tessera::worker
