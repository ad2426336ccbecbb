// The training of one model on one rank, from initial or resumed state to the end,
// a wished stop or an error. Knows no scheduler: worker/control adapts it.
//
// Everything of Trainer lives on the thread that calls it; TrainerSignals may be
// set from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"
#include "scheduler/plan/mask_schedule.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/device/gpu.h"
#include "worker/models/model.h"
#include "worker/parallel/gradient_reducer.h"
#include "worker/parallel/unit_store.h"
#include "worker/parallel/weight_fetcher.h"
#include "worker/train/budget_inbox.h"
#include "worker/train/layer_statistics.h"
#include "worker/train/report_sink.h"
#include "worker/train/step_record.h"
#include "worker/train/trainer_options.h"

namespace tessera::worker {

struct TrainerSignals {
  std::atomic<bool> stop{false};            // end cleanly after the step under way, with a checkpoint
  std::atomic<bool> statistics{false};      // measure layers after the step under way; taken back likewise
  std::atomic<bool> checkpoint{false};      // write one after the step under way; taken back by the trainer
  std::atomic<bool> fenced{false};          // the checkpoints are another's: write none; set before stop
  std::atomic<int64_t> plan_generation{1};  // newest held; set after its budgets are in the inbox
  BudgetInbox budgets;
};

// What a trainer uses; all outlive it.
struct TrainerContext {
  const Model* model = nullptr;
  const plan::MaskPlan* plan = nullptr;
  World* world = nullptr;
  const Dataset* train = nullptr;
  const Dataset* validation = nullptr;  // may be null
  ReportSink* reports = nullptr;
  TrainerSignals* signals = nullptr;
  Gpu* gpu = nullptr;  // whose device in use holds the tensors; null: the host
};

struct TrainingResult {
  int64_t step = 0;
  bool stopped = false;  // before the end, as wished
  int64_t tokens = 0;    // of all ranks
  double loss = 0;       // of the last step
  std::optional<double> validation_loss;
  std::string checkpoint;  // newest written; empty: none
};

class Trainer {
 public:
  // Allocates and fills this rank's units. All ranks call it together.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainerOptions& options,
                                                         const TrainerContext& context);

  // Trains to the end. Unavailable: a peer is lost. ResourceExhausted: memory. DataLoss: a damaged file.
  absl::StatusOr<TrainingResult> Run();

  // One step, without evaluation and checkpoints; for tests and benches. One that is out of memory is tried
  // twice.
  absl::StatusOr<Agreement> Step();

  UnitStore& store() { return *store_; }
  int64_t step() const { return step_; }

 private:
  Trainer(const TrainerOptions& options, const TrainerContext& context);
  absl::Status Load();
  absl::Status Resume();
  const plan::MaskPlan& masks() const { return masks_ != nullptr ? *masks_ : *context_.plan; }
  void SetMasksOf(const std::string& checkpoint);
  absl::Status Resample();
  absl::Status MakeReducer();
  absl::Status AdoptPlan(int64_t generation);
  absl::StatusOr<TrainingResult> RunLoop();
  absl::StatusOr<Agreement> TryStep();
  bool MayRepeat() const;
  absl::StatusOr<double> RunMicroSteps();  // this rank's loss sum
  absl::StatusOr<double> RunPass(const Batch& batch, uint64_t draw);
  absl::Status Update(const Agreement& agreed, double learning_rate);
  absl::Status Evaluate();
  absl::Status BeginCheckpoint();
  absl::Status FinishCheckpoint();  // of one that was begun
  absl::Status CheckpointNow();     // begun and finished
  absl::Status OutliveCheckpoint(const absl::Status& status, bool wished);
  absl::Status EstimateNorms();
  absl::Status AfterStep(const Agreement& agreed);
  void Report(const Agreement& agreed);
  // For measuring layers, with the sums of the step; measures where it is due, or asked for by any rank.
  void NoteLayers(bool asked);

  TrainerOptions options_;
  TrainerContext context_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<plan::MaskPlan> masks_;  // in force, where they are not the plan's own
  int64_t period_ = 0;                     // of them
  std::unique_ptr<UnitStore> store_;
  std::unique_ptr<WeightFetcher> fetcher_;
  std::unique_ptr<GradientReducer> reducer_;
  KeptPieces* pieces_ = nullptr;                 // the reducer's, if it is one of dropping
  at::Tensor residual_;                          // of a checkpoint, until a reducer takes it; else undefined
  int64_t generation_ = 0;                       // of the plan in force
  int64_t generation_since_ = 1;                 // its first step, from 1
  std::unique_ptr<LayerStatistics> statistics_;  // null: never measured
  int64_t statistics_step_ = 0;                  // next due
  bool drifted_ = false;                         // layers of ours have changed their shares since
  Sampler sampler_;
  int64_t step_ = 0;        // finished
  int64_t tokens_ = 0;      // of all ranks
  int64_t samples_ = 0;     // of all ranks
  int64_t own_tokens_ = 0;  // of the step under way
  absl::Status shortage_;   // of memory, in the step under way, which is then void
  bool repeats_ = false;    // the step under way was void once
  double computed_at_ = 0;  // when the last backward pass ended, s
  StepReport timing_;       // of the step under way
  std::optional<double> validation_loss_;
  int64_t validated_step_ = -1;
  std::unique_ptr<CheckpointWriter> writer_;  // null: no checkpoints
  int64_t estimated_step_ = -1;               // of which the batch norms' statistics are
  std::string checkpoint_;
  int64_t checkpoint_step_ = -1;    // of the newest that is complete or under way
  bool checkpoint_wished_ = false;  // the one under way
  int64_t retry_step_ = -1;         // a wished checkpoint that failed is wished again after this step
};

}  // namespace tessera::worker
