// Trains one model under one rule of gradient dropping on ranks that are threads of this process, and prints
// one line of JSON: losses, bytes sent per step, times. tests/bench/dropping.py runs the studies.
#include <ATen/Parallel.h>
#include <spdlog/spdlog.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "scheduler/plan/layer_budgets.h"
#include "tests/bench/study_budgets.h"
#include "tests/bench/study_losses.h"
#include "tests/worker/data/digits.h"
#include "worker/comm/gloo_world.h"
#include "worker/eval/job_data.h"
#include "worker/eval/job_model.h"
#include "worker/train/trainer.h"

namespace tessera::worker {
namespace {

struct Study {
  std::string preset = "llama-1m", config, train, validation, format = "tokens", digits;
  int ranks = 2;
  int64_t length = 128, batch = 4, steps = 300, seed = 1, vocab = 0, classes = 0, evaluation_tokens = 32768;
  int accumulation = 1;
  double learning_rate = 2e-3, coverage = 1;
  std::string rule;  // empty: dense
  double density = 0.3, share = -1, warmup = 0;
  std::string residual = "none", layers = "size";
  bool freeze = false, rare = false, ends = true, train_inverse = false;
  int64_t refresh = 1, recompute = -1;
  std::vector<double> worker_shares;
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
    if (report.step < 3) {  // the first steps fault memory in
      cpu_before_ = CpuSeconds();
      return;
    }
    seconds.push_back(report.step_seconds);
    compute.push_back(CpuSeconds() - cpu_before_);
    cpu_before_ = CpuSeconds();
    dropping.push_back(report.dropping_seconds);
  }
  void OnAccuracy(int64_t, double value) override { accuracy = value; }
  std::vector<double> losses, seconds, compute, dropping;
  int64_t bytes = 0;
  double accuracy = -1;

 private:
  static double CpuSeconds() {  // of the trainer's thread
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  double cpu_before_ = 0;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

v1::TrainingJobSpec SpecOf(const Study& study) {
  v1::TrainingJobSpec spec;
  if (study.config.empty()) spec.mutable_model()->set_preset(study.preset);
  spec.mutable_model()->set_config_path(study.config);
  if (study.vocab > 0) spec.mutable_model()->set_vocab_size(study.vocab);
  if (study.classes > 0) spec.mutable_model()->set_classes(study.classes);
  v1::DataSpec& data = *spec.mutable_data();
  data.set_train(study.digits.empty() ? study.train : study.digits);
  data.set_validation(study.digits.empty() ? study.validation : study.digits);
  data.set_sequence_length(study.length);
  data.set_augmentation(false);
  data.set_format(study.format == "images"  ? v1::DATA_FORMAT_IMAGES
                  : study.format == "lines" ? v1::DATA_FORMAT_LINES
                                            : v1::DATA_FORMAT_TOKENS);
  spec.mutable_schedule()->set_seed(static_cast<uint64_t>(study.seed));
  return spec;
}

TrainerOptions OptionsOf(const Study& study, const plan::ModelShape& shape) {
  TrainerOptions options;
  options.seed = static_cast<uint64_t>(study.seed);
  options.batch = study.batch;
  options.accumulation = study.accumulation;
  options.targets_per_sample = study.length;
  options.schedule.total_steps = study.steps;
  options.schedule.peak = study.learning_rate;
  options.schedule.warmup_steps = study.steps / 20;
  options.evaluation_tokens = study.evaluation_tokens;
  options.checksum_interval = 0;
  if (study.train_inverse) options.runner.residual = ResidualScale::kTrainInverse;
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
  dropping.worker_shares = study.worker_shares;
  dropping.kept = StudyBudgets::BySize(shape, study.density);
  options.dropping = dropping;
  options.dropping_first_step = static_cast<int64_t>(study.warmup * static_cast<double>(study.steps));
  if (study.layers != "size" && study.recompute >= 0) {
    // Once: after a tenth of the run.
    options.statistics_step = std::max(options.dropping_first_step, std::max<int64_t>(1, study.steps / 10));
    options.statistics_interval = study.recompute;
  }
  return options;
}

void Run(const Study& study) {
  if (!study.digits.empty()) WriteDigitsAsCifar(study.digits);
  const v1::TrainingJobSpec spec = SpecOf(study);
  const auto model = OrDie(MakeJobModel(spec));
  plan::MaskRequest request;
  request.workers = study.ranks;
  request.coverage = study.coverage;
  request.ends_always_on = study.ends;
  request.scheme = study.coverage < 1 ? plan::Scheme::kCyclic : plan::Scheme::kFull;
  const plan::MaskPlan plan = OrDie(plan::MakeMaskPlan(model->shape(), request));
  const TrainerOptions options = OptionsOf(study, model->shape());
  MemoryRendezvous rendezvous;
  Measure measure;
  StudyBudgets budgets(model->shape(), study.layers, study.density, study.ranks);
  nlohmann::json result;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < study.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      GlooOptions gloo;
      gloo.rank = rank;
      gloo.size = study.ranks;
      const auto world = OrDie(MakeGlooWorld(gloo, &rendezvous));
      const JobData data = OrDie(OpenJobData(spec, model->input()));
      ReportFanOut reports;
      if (rank == 0) reports.Add(&measure);
      reports.Add(budgets.sink(rank));
      TrainerContext context{model.get(),           &plan,    world.get(),          data.train.get(),
                             data.validation.get(), &reports, budgets.signals(rank)};
      const auto trainer = OrDie(Trainer::Create(options, context));
      budgets.Watch(rank, &trainer->store());
      const TrainingResult done = OrDie(trainer->Run());
      if (rank != 0) return;
      result["validation_loss"] = done.validation_loss.value_or(0);
      if (study.rare) {
        const RareLosses rare =
            MeasureRareLosses(*model, trainer->store().weights(), *data.train, *data.validation);
        result["rare_loss"] = rare.rare;
        result["common_loss"] = rare.common;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  double tail = 0;
  const size_t last = std::min<size_t>(50, measure.losses.size());
  for (size_t i = measure.losses.size() - last; i < measure.losses.size(); ++i) tail += measure.losses[i];
  result["training_loss"] = tail / static_cast<double>(last);
  result["bytes_per_step"] = measure.bytes;
  result["step_seconds"] = Median(measure.seconds);
  result["cpu_seconds"] = Median(measure.compute);
  result["dropping_seconds"] = Median(measure.dropping);
  result["elements"] = model->shape().elements();
  result["recomputed"] = budgets.published();
  if (measure.accuracy >= 0) result["accuracy"] = measure.accuracy;
  std::printf("%s\n", result.dump().c_str());
}

}  // namespace
}  // namespace tessera::worker

int main(int argc, char** argv) {
  tessera::worker::Study study;
  CLI::App app("one run of the dropping study");
  app.add_option("--preset", study.preset);
  app.add_option("--config", study.config, "a Hugging Face config.json instead of a preset");
  app.add_option("--train", study.train);
  app.add_option("--validation", study.validation);
  app.add_option("--format", study.format, "tokens, lines, images");
  app.add_option("--digits", study.digits, "folder to write scikit-learn's digits to, and to train on");
  app.add_option("--vocab", study.vocab);
  app.add_option("--classes", study.classes);
  app.add_option("--ranks", study.ranks);
  app.add_option("--length", study.length);
  app.add_option("--batch", study.batch);
  app.add_option("--accumulation", study.accumulation);
  app.add_option("--steps", study.steps);
  app.add_option("--seed", study.seed);
  app.add_option("--learning-rate", study.learning_rate);
  app.add_option("--evaluation-tokens", study.evaluation_tokens);
  app.add_option("--coverage", study.coverage);
  app.add_option("--ends", study.ends, "first and last block on every rank");
  app.add_flag("--train-inverse", study.train_inverse, "branches are scaled by 1/C in training");
  app.add_option("--rule", study.rule, "empty: dense");
  app.add_option("--density", study.density);
  app.add_option("--share", study.share);
  app.add_option("--warmup", study.warmup);
  app.add_option("--residual", study.residual);
  app.add_option("--refresh", study.refresh);
  app.add_option("--layers", study.layers, "budgets of layers: size, root, root_root, global");
  app.add_option("--recompute", study.recompute, "steps between budgets; 0: once, -1: never");
  app.add_option("--worker-shares", study.worker_shares)->delimiter(',');
  app.add_flag("--freeze", study.freeze);
  app.add_flag("--rare", study.rare, "losses of rare and of common tokens as well");
  CLI11_PARSE(app, argc, argv);
  tessera::worker::Run(study);
  return 0;
}
