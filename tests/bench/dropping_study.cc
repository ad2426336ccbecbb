// Trains one model under one rule of gradient dropping on ranks that are threads of this process, and prints
// one line of JSON: losses, bytes sent per step, gradient memory. tests/bench/dropping.py runs the studies.
#include <ATen/Parallel.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <thread>
#include <vector>

#include "scheduler/plan/layer_budgets.h"
#include "worker/comm/gloo_world.h"
#include "worker/data/token_dataset.h"
#include "worker/train/trainer.h"

namespace tessera::worker {
namespace {

struct Study {
  std::string preset = "llama-1m", train, validation;
  int ranks = 2;
  int64_t length = 128, batch = 4, steps = 300, seed = 1;
  double learning_rate = 2e-3, coverage = 1;
  std::string rule;  // empty: dense
  double density = 0.3, share = -1, warmup = 0;
  std::string residual = "none";
  bool freeze = false;
  int64_t refresh = 1;
};

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

class Measure final : public ReportSink {
 public:
  void OnStep(const StepReport& report) override {
    losses.push_back(report.loss);
    bytes = report.traffic_bytes;
  }
  std::vector<double> losses;
  int64_t bytes = 0;
};

TrainerOptions OptionsOf(const Study& study, const plan::ModelShape& shape) {
  TrainerOptions options;
  options.seed = static_cast<uint64_t>(study.seed);
  options.batch = study.batch;
  options.targets_per_sample = study.length;
  options.schedule.total_steps = study.steps;
  options.schedule.peak = study.learning_rate;
  options.schedule.warmup_steps = study.steps / 20;
  options.evaluation_tokens = 32768;
  options.checksum_interval = 0;
  if (study.rule.empty()) return options;
  DroppingOptions dropping;
  dropping.rule = OrDie(FindDroppingRule(study.rule));
  dropping.importance_share = study.share >= 0 ? study.share : dropping.rule->needs().default_share;
  dropping.refresh = study.refresh;
  dropping.freeze_unsent = study.freeze;
  dropping.residual = study.residual == "fp32"   ? ResidualKeep::kFp32
                      : study.residual == "bf16" ? ResidualKeep::kBf16
                                                 : ResidualKeep::kNone;
  dropping.seed = options.seed;
  std::vector<plan::LayerDemand> layers;
  for (const auto& parameter : shape.parameters) {
    layers.push_back({.elements = parameter.elements(), .floor = parameter.dims.size() < 2 ? 1.0 : 0.0});
  }
  dropping.kept = OrDie(plan::LayerBudgets(study.density, layers));
  options.dropping = dropping;
  options.dropping_first_step = static_cast<int64_t>(study.warmup * static_cast<double>(study.steps));
  return options;
}

void Run(const Study& study) {
  const auto model = OrDie(MakeModel({.preset = study.preset, .vocab_size = 260}));
  const auto open = [&](const std::string& path, DataPart part) {
    return OrDie(MakeTokenSamples(OrDie(OpenTokenDataset(path, part)), study.length));
  };
  const auto train = open(study.train, DataPart::kTraining),
             validation = open(study.validation, DataPart::kValidation);
  plan::MaskRequest request;
  request.workers = study.ranks;
  request.coverage = study.coverage;
  request.scheme = study.coverage < 1 ? plan::Scheme::kCyclic : plan::Scheme::kFull;
  const plan::MaskPlan plan = OrDie(plan::MakeMaskPlan(model->shape(), request));
  const TrainerOptions options = OptionsOf(study, model->shape());
  MemoryRendezvous rendezvous;
  Measure measure;
  double loss = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < study.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      GlooOptions gloo;
      gloo.rank = rank;
      gloo.size = study.ranks;
      const auto world = OrDie(MakeGlooWorld(gloo, &rendezvous));
      ReportSink nobody;
      TrainerSignals signals;
      ReportSink* reports = rank == 0 ? static_cast<ReportSink*>(&measure) : &nobody;
      TrainerContext context{model.get(),      &plan,   world.get(), train.get(),
                             validation.get(), reports, &signals};
      const auto trainer = OrDie(Trainer::Create(options, context));
      const TrainingResult result = OrDie(trainer->Run());
      if (rank == 0) loss = *result.validation_loss;
    });
  }
  for (std::thread& thread : threads) thread.join();
  double tail = 0;
  const size_t last = std::min<size_t>(50, measure.losses.size());
  for (size_t i = measure.losses.size() - last; i < measure.losses.size(); ++i) tail += measure.losses[i];
  std::printf("{\"validation_loss\": %.5f, \"training_loss\": %.5f, \"bytes_per_step\": %lld}\n", loss,
              tail / static_cast<double>(last), static_cast<long long>(measure.bytes));
}

}  // namespace
}  // namespace tessera::worker

int main(int argc, char** argv) {
  tessera::worker::Study study;
  CLI::App app("one run of the dropping study");
  app.add_option("--preset", study.preset);
  app.add_option("--train", study.train)->required();
  app.add_option("--validation", study.validation)->required();
  app.add_option("--ranks", study.ranks);
  app.add_option("--length", study.length);
  app.add_option("--batch", study.batch);
  app.add_option("--steps", study.steps);
  app.add_option("--seed", study.seed);
  app.add_option("--learning-rate", study.learning_rate);
  app.add_option("--coverage", study.coverage);
  app.add_option("--rule", study.rule, "empty: dense");
  app.add_option("--density", study.density);
  app.add_option("--share", study.share);
  app.add_option("--warmup", study.warmup);
  app.add_option("--residual", study.residual);
  app.add_option("--refresh", study.refresh);
  app.add_flag("--freeze", study.freeze);
  CLI11_PARSE(app, argc, argv);
  tessera::worker::Run(study);
  return 0;
}
