// Trains the toy model on N ranks and hands back what each rank ended with.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/worker/parallel/rank_threads.h"
#include "tests/worker/parallel/toy_model.h"
#include "worker/train/trainer.h"

namespace tessera::worker {

class RecordingSink final : public ReportSink {
 public:
  void OnStep(const StepReport& report) override { steps.push_back(report); }
  void OnEvaluation(int64_t step, double loss, int64_t) override { evaluations.emplace_back(step, loss); }
  void OnCheckpoint(int64_t, const std::string& path) override { checkpoints.push_back(path); }
  std::vector<StepReport> steps;
  std::vector<std::pair<int64_t, double>> evaluations;
  void OnResumed(int64_t, const std::string& path, const std::vector<std::string>& damaged) override {
    resumed_from = path;
    passed_over = damaged;
  }
  std::vector<std::string> checkpoints;
  std::string resumed_from;
  std::vector<std::string> passed_over;
};

struct RankOutcome {
  std::vector<at::Tensor> weights;              // by parameter, undefined where not held
  std::vector<std::optional<UnitState>> units;  // by unit
  RecordingSink reports;
  absl::StatusOr<TrainingResult> result = absl::UnknownError("did not run");
};

struct TrainingRig {
  ToyModel model{6};
  ToyDataset data{20000};
  int ranks = 1;
  double coverage = 1;
  std::optional<plan::Scheme> scheme;  // default: full at coverage 1, else cyclic
  TrainerOptions options;
  std::function<void(int rank, const StepReport& report, TrainerSignals& signals)> on_step;

  TrainingRig() {
    options.batch = 2;
    options.targets_per_sample = ToyDataset::kLength;
    options.schedule.total_steps = 6;
    options.schedule.peak = 0.01;
    options.schedule.warmup_steps = 2;
    options.evaluation_tokens = 64;
    options.checksum_interval = 2;
  }

  plan::MaskPlan Plan() const {
    plan::MaskRequest request;
    request.workers = ranks;
    request.coverage = coverage;
    request.scheme = scheme.value_or(coverage == 1 ? plan::Scheme::kFull : plan::Scheme::kCyclic);
    auto plan = plan::MakeMaskPlan(model.shape(), request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }

  std::vector<RankOutcome> Train() const {
    const plan::MaskPlan plan = Plan();
    std::vector<RankOutcome> outcomes(ranks);
    RunRanks(ranks, [&](int rank, World& world) {
      RankOutcome& outcome = outcomes[rank];
      TrainerSignals signals;
      struct StepSink final : ReportSink {
        std::function<void(const StepReport&)> call;
        void OnStep(const StepReport& report) override { call(report); }
      } step_sink;
      step_sink.call = [&](const StepReport& report) {
        if (on_step) on_step(rank, report, signals);
      };
      ReportFanOut reports;
      reports.Add(&outcome.reports);
      reports.Add(&step_sink);
      TrainerContext context{&model, &plan, &world, &data, &data, &reports, &signals};
      auto trainer = Trainer::Create(options, context);
      if (!trainer.ok()) {
        outcome.result = trainer.status();
        return;
      }
      outcome.result = (*trainer)->Run();
      outcome.units.resize(plan.units().size());
      for (const UnitState& state : (*trainer)->store().units()) outcome.units[state.unit] = state;
      for (const at::Tensor& weight : (*trainer)->store().weights()) {
        outcome.weights.push_back(weight.defined() ? weight.detach().clone() : at::Tensor());
      }
    });
    return outcomes;
  }
};

inline double LargestDifference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() && b[i].defined())
      largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  }
  return largest;
}

inline bool SameBits(const RankOutcome& a, const RankOutcome& b) {
  for (size_t u = 0; u < a.units.size(); ++u) {
    if (!a.units[u] || !b.units[u]) continue;
    if (!at::equal(a.units[u]->parameters, b.units[u]->parameters)) return false;
    if (!at::equal(a.units[u]->exp_avg, b.units[u]->exp_avg)) return false;
    if (!at::equal(a.units[u]->exp_avg_sq, b.units[u]->exp_avg_sq)) return false;
  }
  return true;
}

}  // namespace tessera::worker
