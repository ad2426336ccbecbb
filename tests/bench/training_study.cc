// Trains one model in one regime, or under one rule of gradient dropping, on ranks that are threads of this
// process, and prints one line of JSON: losses, bytes sent per step, times. Progress goes to stderr. Nothing
// but times depends on the machine's load. tests/bench/quality.py and dropping.py run the studies.
//
// Exit status 3: the loss is no longer finite.
#include <ATen/Parallel.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "scheduler/plan/flop_matching.h"
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
  std::string preset = "llama-1m", config, train, validation, format = "tokens", digits, tokenizer;
  int ranks = 2;
  int64_t length = 128, batch = 4, steps = 300, seed = 1, vocab = 0, classes = 0, evaluation_tokens = 32768;
  int accumulation = 1;
  double learning_rate = 2e-3, coverage = 1;
  std::string rule;  // empty: dense
  double density = 0.3, share = -1, warmup = 0;
  std::string residual = "none", layers = "size";
  bool freeze = false, rare = false, ends = true, train_inverse = false;
  bool neurons = false, backward = false, sharded = false, flop_matched = false;
  double stochastic_depth = 0, dropout = 0;
  int64_t refresh = 1, recompute = -1;
  std::vector<double> worker_shares;
};

constexpr int kDiverged = 3;
constexpr size_t kCurvePoints = 20;

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  // Of several threads, and destructors would wait for the others.
  std::_Exit(absl::StrContains(result.status().message(), "is not finite") ? kDiverged : 1);
}

class Measure final : public ReportSink {
 public:
  explicit Measure(bool leads) : leads_(leads) {}
  void OnStep(const StepReport& report) override {
    losses.push_back(report.loss);
    bytes = report.traffic_bytes;
    if (leads_ && report.step % 100 == 0) {
      std::fprintf(stderr, "  %lld of %lld: %.4f\n", static_cast<long long>(report.step),
                   static_cast<long long>(report.total_steps), report.loss);
    }
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
  const bool leads_;  // tells how it goes
  double cpu_before_ = 0;
};

double Mean(const std::vector<double>& values, size_t begin, size_t end) {
  return std::accumulate(values.begin() + begin, values.begin() + end, 0.0) /
         static_cast<double>(std::max<size_t>(1, end - begin));
}

// Means of equal parts of the run.
std::vector<double> Curve(const std::vector<double>& losses) {
  const size_t points = std::min(kCurvePoints, losses.size());
  std::vector<double> curve;
  for (size_t i = 0; i < points; ++i) {
    curve.push_back(Mean(losses, i * losses.size() / points, (i + 1) * losses.size() / points));
  }
  return curve;
}

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
  data.set_tokenizer(study.tokenizer);
  data.set_sequence_length(study.length);
  data.set_augmentation(false);
  data.set_format(study.format == "images"  ? v1::DATA_FORMAT_IMAGES
                  : study.format == "lines" ? v1::DATA_FORMAT_LINES
                                            : v1::DATA_FORMAT_TOKENS);
  spec.mutable_schedule()->set_seed(static_cast<uint64_t>(study.seed));
  return spec;
}

// Steps after which as many FLOPs are spent as by dense training, where asked for. Stochastic depth skips
// block l of L with probability l / L * rate.
int64_t StepsOf(const Study& study, const plan::ModelShape& shape, const plan::MaskPlan& plan) {
  if (!study.flop_matched) return study.steps;
  const double blocks = static_cast<double>(shape.blocks.size());
  double skipped = 0;
  for (size_t b = 0; b < shape.blocks.size(); ++b) {
    skipped += shape.blocks[b].flops_per_token * study.stochastic_depth * static_cast<double>(b + 1) / blocks;
  }
  const double run = 1 - skipped / shape.flops_per_token();
  return std::llround(static_cast<double>(plan::FlopMatchedSteps(plan, study.steps, study.backward)) / run);
}

TrainerOptions OptionsOf(const Study& study, const plan::ModelShape& shape, const plan::MaskPlan& plan) {
  TrainerOptions options;
  options.seed = static_cast<uint64_t>(study.seed);
  options.batch = study.batch;
  options.accumulation = study.accumulation;
  options.targets_per_sample = study.length;
  options.schedule.total_steps = StepsOf(study, shape, plan);
  options.schedule.peak = study.learning_rate;
  options.schedule.warmup_steps = options.schedule.total_steps / 20;
  options.evaluation_tokens = study.evaluation_tokens;
  options.checksum_interval = 0;
  if (study.train_inverse) options.runner.residual = ResidualScale::kTrainInverse;
  options.store.backward_masking = study.backward;
  options.store.sharded = study.sharded;
  options.runner.stochastic_depth = study.stochastic_depth;
  options.runner.dropout = study.dropout;
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

plan::MaskPlan PlanOf(const Study& study, const plan::ModelShape& shape) {
  plan::MaskRequest request;
  request.workers = study.ranks;
  request.coverage = study.coverage;
  request.ends_always_on = study.ends;
  request.granularity = study.neurons ? plan::Granularity::kNeuron : plan::Granularity::kBlock;
  request.scheme = study.coverage < 1 ? plan::Scheme::kCyclic : plan::Scheme::kFull;
  request.seed = static_cast<uint64_t>(study.seed);
  return OrDie(plan::MakeMaskPlan(shape, request));
}

nlohmann::json Describe(const Measure& measure) {
  nlohmann::json result;
  const std::vector<double>& losses = measure.losses;
  result["steps"] = losses.size();
  result["training_loss"] = Mean(losses, losses.size() - std::min<size_t>(50, losses.size()), losses.size());
  result["curve"] = Curve(losses);
  result["step_seconds"] = Median(measure.seconds);
  result["cpu_seconds"] = Median(measure.compute);
  result["dropping_seconds"] = Median(measure.dropping);
  if (measure.accuracy >= 0) result["accuracy"] = measure.accuracy;
  return result;
}

void Run(const Study& study) {
  if (!study.digits.empty()) WriteDigitsAsCifar(study.digits);
  const v1::TrainingJobSpec spec = SpecOf(study);
  const auto model = OrDie(MakeJobModel(spec));
  const plan::MaskPlan plan = PlanOf(study, model->shape());
  const TrainerOptions options = OptionsOf(study, model->shape(), plan);
  MemoryRendezvous rendezvous;
  std::vector<Measure> measures;
  for (int rank = 0; rank < study.ranks; ++rank) measures.emplace_back(/*leads=*/rank == 0);
  StudyBudgets budgets(model->shape(), study.layers, study.density, study.ranks);
  TrainingResult done;
  RareLosses rare;
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
      reports.Add(&measures[rank]);
      reports.Add(budgets.sink(rank));
      TrainerContext context{model.get(),           &plan,    world.get(),          data.train.get(),
                             data.validation.get(), &reports, budgets.signals(rank)};
      const auto trainer = OrDie(Trainer::Create(options, context));
      budgets.Watch(rank, &trainer->store());
      const TrainingResult result = OrDie(trainer->Run());
      if (rank != 0) return;
      done = result;
      if (study.rare) {
        rare = MeasureRareLosses(*model, trainer->store().weights(), *data.train, *data.validation);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  nlohmann::json result = Describe(measures[0]);
  // Of the rank that sends most.
  result["bytes_per_step"] =
      std::max_element(measures.begin(), measures.end(), [](const Measure& a, const Measure& b) {
        return a.bytes < b.bytes;
      })->bytes;
  result["validation_loss"] = done.validation_loss.value_or(0);
  result["elements"] = model->shape().elements();
  result["held_flops"] = plan::HeldFlopsShare(plan, study.backward);
  result["recomputed"] = budgets.published();
  if (study.rare) {
    result["rare_loss"] = rare.rare;
    result["common_loss"] = rare.common;
  }
  std::printf("%s\n", result.dump().c_str());
}

void AddOptions(CLI::App* app, Study* study) {
  app->add_option("--preset", study->preset);
  app->add_option("--config", study->config, "a Hugging Face config.json instead of a preset");
  app->add_option("--train", study->train);
  app->add_option("--validation", study->validation);
  app->add_option("--format", study->format, "tokens, lines, images");
  app->add_option("--tokenizer", study->tokenizer, "folder of the one that reads lines");
  app->add_option("--digits", study->digits, "folder to write scikit-learn's digits to, and to train on");
  app->add_option("--vocab", study->vocab);
  app->add_option("--classes", study->classes);
  app->add_option("--ranks", study->ranks);
  app->add_option("--length", study->length);
  app->add_option("--batch", study->batch);
  app->add_option("--accumulation", study->accumulation);
  app->add_option("--steps", study->steps);
  app->add_flag("--flop-matched", study->flop_matched, "more steps, for the FLOPs of `steps` dense ones");
  app->add_option("--seed", study->seed);
  app->add_option("--learning-rate", study->learning_rate);
  app->add_option("--evaluation-tokens", study->evaluation_tokens);
  app->add_option("--coverage", study->coverage);
  app->add_flag("--neurons", study->neurons, "masks of FFN chunks, heads and channels instead of blocks");
  app->add_flag("--backward", study->backward, "backward masking");
  app->add_flag("--sharded", study->sharded, "FSDP among the holders");
  app->add_option("--stochastic-depth", study->stochastic_depth);
  app->add_option("--dropout", study->dropout);
  app->add_option("--ends", study->ends, "first and last block on every rank");
  app->add_flag("--train-inverse", study->train_inverse, "branches are scaled by 1/C in training");
}

void AddDroppingOptions(CLI::App* app, Study* study) {
  app->add_option("--rule", study->rule, "empty: dense");
  app->add_option("--density", study->density);
  app->add_option("--share", study->share);
  app->add_option("--warmup", study->warmup);
  app->add_option("--residual", study->residual);
  app->add_option("--refresh", study->refresh);
  app->add_option("--layers", study->layers, "budgets of layers: size, root, root_root, global");
  app->add_option("--recompute", study->recompute, "steps between budgets; 0: once, -1: never");
  app->add_option("--worker-shares", study->worker_shares)->delimiter(',');
  app->add_flag("--freeze", study->freeze);
  app->add_flag("--rare", study->rare, "losses of rare and of common tokens as well");
}

}  // namespace
}  // namespace tessera::worker

int main(int argc, char** argv) {
  tessera::worker::Study study;
  CLI::App app("one run of a study of quality");
  tessera::worker::AddOptions(&app, &study);
  tessera::worker::AddDroppingOptions(&app, &study);
  CLI11_PARSE(app, argc, argv);
  tessera::worker::Run(study);
  return 0;
}
