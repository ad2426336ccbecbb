// Trains the toy model on N ranks and hands back what each rank ended with.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/status.h"
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

// What a rank keeps of each parameter, in its dims; NaN where another does.
std::vector<at::Tensor> KeptWeights(const UnitStore& store);

struct RankOutcome {
  std::vector<at::Tensor> weights;                // see KeptWeights
  std::map<int, std::vector<at::Tensor>> groups;  // by group: its parameters, then moments, flat
  RecordingSink reports;
  absl::StatusOr<TrainingResult> result = absl::UnknownError("did not run");
};

struct TrainingRig {
  ToyModel model{6};
  ToyDataset data{20000};
  int ranks = 1;
  double coverage = 1;
  plan::Granularity granularity = plan::Granularity::kBlock;
  std::optional<plan::Scheme> scheme;  // default: full at coverage 1, else cyclic
  TrainerOptions options;
  std::function<void(int rank, const StepReport& report, TrainerSignals& signals)> on_step;
  std::function<std::unique_ptr<World>(int rank, World& world)> wrap;  // the world that is trained in
  Gpu* gpu = nullptr;                                                  // trained on

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
    request.granularity = granularity;
    request.scheme = scheme.value_or(coverage == 1 ? plan::Scheme::kFull : plan::Scheme::kCyclic);
    auto plan = plan::MakeMaskPlan(model.shape(), request);
    EXPECT_OK(plan);
    return *std::move(plan);
  }

  std::vector<RankOutcome> Train() const {
    const plan::MaskPlan plan = Plan();
    std::vector<RankOutcome> outcomes(ranks);
    RunRanks(ranks, [&](int rank, World& connected) {
      RankOutcome& outcome = outcomes[rank];
      const std::unique_ptr<World> wrapped = wrap ? wrap(rank, connected) : nullptr;
      World& world = wrapped != nullptr ? *wrapped : connected;
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
      TrainerContext context{&model, &plan, &world, &data, &data, &reports, &signals, gpu};
      auto trainer = Trainer::Create(options, context);
      if (!trainer.ok()) {
        outcome.result = trainer.status();
        return;
      }
      outcome.result = (*trainer)->Run();
      const UnitStore& store = (*trainer)->store();
      for (const GroupState& state : store.held()) {
        auto& flats = outcome.groups[state.group];
        flats.push_back(
            store.FlatParameters(state).detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
        for (const at::Tensor& moment : state.moments) flats.push_back(moment.to(at::kCPU));
      }
      outcome.weights = KeptWeights(store);
    });
    return outcomes;
  }
};

inline std::vector<at::Tensor> KeptWeights(const UnitStore& store) {
  const plan::ModelShape& shape = store.model().shape();
  std::vector<at::Tensor> dense;
  for (const plan::Parameter& parameter : shape.parameters) {
    dense.push_back(at::full(parameter.dims, std::nan(""), at::kFloat));
  }
  for (const GroupState& state : store.held()) {
    const at::Tensor flat = store.FlatParameters(state).detach().to(at::kCPU);
    for (const GroupSlot& slot : store.groups()[state.group].slots) {
      const int64_t low = std::max(slot.offset, state.begin),
                    high = std::min(slot.offset + slot.slice.elements, state.end);
      if (low >= high) continue;
      const at::Tensor rows =
          ToRows(slot.slice.dim, dense[slot.slice.parameter]).narrow(0, slot.slice.begin, slot.slice.length);
      const at::Tensor values = rows.reshape({-1}).clone();
      values.slice(0, low - slot.offset, high - slot.offset)
          .copy_(flat.slice(0, low - state.begin, high - state.begin));
      rows.copy_(values.view(rows.sizes()));
    }
  }
  return dense;
}

// Over what both have.
inline double LargestDifference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, (a[i] - b[i]).abs().nan_to_num(0).max().item<double>());
  }
  return largest;
}

inline bool SameBits(const RankOutcome& a, const RankOutcome& b) {
  for (const auto& [group, flats] : a.groups) {
    const auto other = b.groups.find(group);
    if (other == b.groups.end()) continue;
    for (size_t i = 0; i < flats.size(); ++i) {
      if (!at::equal(flats[i], other->second[i])) return false;
    }
  }
  return true;
}

}  // namespace tessera::worker
