// Where a trainer tells what happens: the scheduler, JSONL and TensorBoard files,
// metrics, a test. Called on the trainer's thread; must not block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::worker {

enum class TrainerPhase : uint8_t { kLoading, kTraining, kEvaluating, kCheckpointing, kExporting };

struct StepReport {
  int64_t step = 0;  // steps finished
  int64_t total_steps = 0;
  double loss = 0;          // nats per token, mean over all ranks
  int64_t step_tokens = 0;  // of all ranks in this step
  int64_t tokens = 0;       // of all ranks since the start
  double step_seconds = 0;
  double compute_seconds = 0;   // own
  double sync_seconds = 0;      // own, waiting for peers
  double dropping_seconds = 0;  // CPU time of gradient dropping: selecting, cutting, spreading out
  double gradient_norm = 0;
  double learning_rate = 0;
  int64_t memory_used_bytes = 0;  // counted tensors
  int64_t memory_peak_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t traffic_bytes = 0;  // sent in this step
  int64_t plan_generation = 0;
  int64_t plan_since = 1;  // first step, from 1, that it was in force
  int slowest_rank = 0;
  double gradient_kept_ratio = 1;  // of what this rank holds, what it summed with others
};

// Of a parameter, what one rank measured of it (layer_statistics.h).
struct LayerStatistic {
  int parameter = 0;              // of the shape
  int64_t elements = 0;           // of it, what was measured here
  double second_moment = 0;       // sum of v over them
  double root_second_moment = 0;  // sum of sqrt(v); without moments, of the gradient's root mean square
  double squared_gradient = 0;    // of the divided gradient, kept elements
  double spike = 1;               // largest gradient norm of the window against its median
};

class ReportSink {
 public:
  virtual ~ReportSink() = default;
  virtual void OnPhase(TrainerPhase phase, int64_t step) {}
  virtual void OnStep(const StepReport& report) {}
  // Of what this rank measures for all holders; empty where that is nothing.
  virtual void OnStatistics(int64_t step, int64_t plan_generation,
                            const std::vector<LayerStatistic>& layers) {}
  // Gradient budgets in force from the step after `step`: kept elements, by parameter of the shape.
  virtual void OnBudgets(int64_t step, const std::vector<int64_t>& kept) {}
  // The loss is the mean over the first `tokens` of the validation data.
  virtual void OnEvaluation(int64_t step, double validation_loss, int64_t tokens) {}
  virtual void OnAccuracy(int64_t step, double accuracy) {}  // of a classifier, after OnEvaluation
  virtual void OnCheckpoint(int64_t step, const std::string& path) {}
  // This rank ran out of memory in `step`, from 1, which is done again.
  virtual void OnMemoryShortage(int64_t step, const std::string& error) {}
  // Training goes on from this checkpoint; passed_over: newer ones that are damaged, and how.
  virtual void OnResumed(int64_t step, const std::string& path, const std::vector<std::string>& passed_over) {
  }
};

// Passes everything on to several sinks, which outlive it.
class ReportFanOut final : public ReportSink {
 public:
  void Add(ReportSink* sink) { sinks_.push_back(sink); }
  void OnPhase(TrainerPhase phase, int64_t step) override {
    for (ReportSink* sink : sinks_) sink->OnPhase(phase, step);
  }
  void OnStep(const StepReport& report) override {
    for (ReportSink* sink : sinks_) sink->OnStep(report);
  }
  void OnStatistics(int64_t step, int64_t generation, const std::vector<LayerStatistic>& layers) override {
    for (ReportSink* sink : sinks_) sink->OnStatistics(step, generation, layers);
  }
  void OnBudgets(int64_t step, const std::vector<int64_t>& kept) override {
    for (ReportSink* sink : sinks_) sink->OnBudgets(step, kept);
  }
  void OnMemoryShortage(int64_t step, const std::string& error) override {
    for (ReportSink* sink : sinks_) sink->OnMemoryShortage(step, error);
  }
  void OnEvaluation(int64_t step, double loss, int64_t tokens) override {
    for (ReportSink* sink : sinks_) sink->OnEvaluation(step, loss, tokens);
  }
  void OnAccuracy(int64_t step, double accuracy) override {
    for (ReportSink* sink : sinks_) sink->OnAccuracy(step, accuracy);
  }
  void OnCheckpoint(int64_t step, const std::string& path) override {
    for (ReportSink* sink : sinks_) sink->OnCheckpoint(step, path);
  }
  void OnResumed(int64_t step, const std::string& path,
                 const std::vector<std::string>& passed_over) override {
    for (ReportSink* sink : sinks_) sink->OnResumed(step, path, passed_over);
  }

 private:
  std::vector<ReportSink*> sinks_;
};

}  // namespace tessera::worker
