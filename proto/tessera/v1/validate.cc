#include "proto/tessera/v1/validate.h"

#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/field_checks.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/quantity.h"

namespace tessera::spec {

std::string Show(double value) {  // JSON has no word for what is not finite
  return std::isfinite(value) ? nlohmann::json(value).dump() : absl::StrCat(value);
}

namespace {

constexpr int kMaxWorkers = 1024;
constexpr int kMaxLabel = 63;

bool IsLabel(const std::string& text) {
  if (text.empty() || text.size() > kMaxLabel || text.front() == '-' || text.back() == '-') return false;
  for (const char c : text) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '-') return false;
  }
  return true;
}

void CheckLabel(const std::string& path, const std::string& text, Checks* checks) {
  if (IsLabel(text)) return;
  std::string suggestion;
  for (const char c : text.substr(0, kMaxLabel)) {
    suggestion += absl::ascii_isalnum(c) ? absl::ascii_tolower(c) : '-';
  }
  while (!suggestion.empty() && suggestion.front() == '-') suggestion.erase(0, 1);
  while (!suggestion.empty() && suggestion.back() == '-') suggestion.pop_back();
  checks->Add(path, Show(text),
              "must be 1 to 63 lower-case letters, digits and hyphens, with no hyphen at either end",
              suggestion.empty() ? "" : absl::StrCat("for example ", suggestion));
}

// The service runs elsewhere than its caller, so that only an absolute path says the same to both.
void CheckPath(const std::string& path, const std::string& value, Checks* checks) {
  if (value.empty() || absl::StartsWith(value, "/") || absl::StartsWith(value, "file:///")) return;
  const std::string remedy = "use an absolute path of the service's machine, for example /data";
  if (absl::StrContains(value, "://") && !absl::StartsWith(value, "file://")) {
    checks->NotYet(path, Show(value), remedy);
  } else {
    checks->Add(path, Show(value), "must be an absolute path, or file:/// and one", remedy);
  }
}

void CheckPaths(const v1::TrainingJobSpec& spec, Checks* checks) {
  CheckPath("spec.model.configPath", spec.model().config_path(), checks);
  CheckPath("spec.model.initialWeights", spec.model().initial_weights(), checks);
  CheckPath("spec.data.train", spec.data().train(), checks);
  CheckPath("spec.data.validation", spec.data().validation(), checks);
  CheckPath("spec.data.tokenizer", spec.data().tokenizer(), checks);
  CheckPath("spec.checkpoint.uri", spec.checkpoint().uri(), checks);
  CheckPath("spec.checkpoint.resumeFrom", spec.checkpoint().resume_from(), checks);
}

void CheckModel(const v1::ModelSpec& model, Checks* checks) {
  if (model.preset().empty() && model.config_path().empty()) {
    checks->Add("spec.model", "", "needs a model", "set preset (for example llama-8m) or configPath");
  } else if (!model.preset().empty() && !model.config_path().empty()) {
    checks->Add("spec.model.configPath", Show(model.config_path()), "excludes spec.model.preset",
                "keep one of them");
  }
  if (model.has_vocab_size())
    checks->Within<int64_t>("spec.model.vocabSize", model.vocab_size(), 2, int64_t{1} << 24);
  if (model.has_classes())
    checks->Within<int64_t>("spec.model.classes", model.classes(), 2, int64_t{1} << 24);
}

void CheckData(const v1::DataSpec& data, Checks* checks) {
  if (data.train().empty() && data.format() != v1::DATA_FORMAT_SYNTHETIC) {
    checks->Add("spec.data.train", "", "needs data", "token shards are made with `tessera data prepare`");
  }
  checks->KnownEnum("spec.data.format", data.format());
  if (data.format() == v1::DATA_FORMAT_IMAGES && data.sequence_length() != 1) {
    checks->Add("spec.data.sequenceLength", Show(data.sequence_length()), "must be 1 for images",
                "leave it out");
  }
  checks->Within<int64_t>("spec.data.sequenceLength", data.sequence_length(), 1, 1 << 20);
}

void CheckWorkers(const v1::WorkersSpec& workers, Checks* checks) {
  checks->Within<int32_t>("spec.workers.count", workers.count(), 1, kMaxWorkers);
  if (workers.count() >= 1 && workers.count() <= kMaxWorkers) {
    checks->Within<int32_t>("spec.workers.min", workers.min(), 1, workers.count());
    checks->Within<int32_t>("spec.workers.max", workers.max(), workers.count(), kMaxWorkers);
  }
  checks->Within<int32_t>("spec.workers.batch", workers.batch(), 1, 65536);
}

// What only holds for a fixed number of workers.
void CheckElastic(const v1::TrainingJobSpec& spec, Checks* checks) {
  const v1::WorkersSpec& workers = spec.workers();
  if (workers.min() == workers.count() && workers.max() == workers.count()) return;
  if (workers.min() < 1) return;
  const std::string fixed =
      absl::StrCat("set spec.workers.min and max to spec.workers.count, ", workers.count());
  const auto one_by_one = [&](const char* path, int entries) {
    if (entries == 0) return;
    checks->Add(path, absl::StrCat(entries, " entries"),
                "names workers one by one, whose number spec.workers.min and max let change",
                absl::StrCat("leave it out, or ", fixed));
  };
  one_by_one("spec.resources.perWorker", spec.resources().per_worker_size());
  one_by_one("spec.dropping.workerLimits", spec.dropping().worker_limits_size());
  if (spec.subnetwork().min_holders() > workers.min() && spec.subnetwork().min_holders() <= workers.count()) {
    checks->Add("spec.subnetwork.minHolders", Show(spec.subnetwork().min_holders()),
                absl::StrCat("must be at most spec.workers.min, ", workers.min()),
                "use fewer, or a larger spec.workers.min");
  }
  for (const auto& [path, given] : {std::pair{"spec.schedule.tokens", spec.schedule().has_tokens()},
                                    {"spec.schedule.epochs", spec.schedule().has_epochs()},
                                    {"spec.schedule.flopMatched", spec.schedule().flop_matched()}}) {
    if (!given) continue;
    checks->Add(path, "", "may give another number of steps with every number of workers",
                absl::StrCat("use spec.schedule.steps, or ", fixed));
  }
}

void CheckSubnetwork(const v1::SubnetworkSpec& subnetwork, int workers, Checks* checks) {
  checks->KnownEnum("spec.subnetwork.granularity", subnetwork.granularity());
  checks->KnownEnum("spec.subnetwork.masking", subnetwork.masking());
  checks->KnownEnum("spec.subnetwork.absentWeights", subnetwork.absent_weights());
  if (!subnetwork.coverage_auto()) {
    checks->Above("spec.subnetwork.coverage", subnetwork.coverage(), 0, 1);
  } else if (subnetwork.has_coverage()) {
    checks->Add("spec.subnetwork.coverage", Show(subnetwork.coverage()),
                "excludes spec.subnetwork.coverageAuto", "take one of them out");
  }
  checks->AtLeast<int32_t>("spec.subnetwork.minHolders", subnetwork.min_holders(), 1);
  if (workers >= 1 && subnetwork.min_holders() > workers) {
    checks->Add("spec.subnetwork.minHolders", Show(subnetwork.min_holders()),
                absl::StrCat("must be at most spec.workers.count, ", workers),
                absl::StrCat("use ", workers, " or fewer, or more workers"));
  }
  checks->Within<double>("spec.subnetwork.minGap", subnetwork.min_gap(), 0, 1);
  checks->KnownEnum("spec.subnetwork.scheme", subnetwork.scheme());
  checks->KnownEnum("spec.subnetwork.batchNorm", subnetwork.batch_norm());
  if (subnetwork.batch_norm() == v1::BATCH_NORM_AVERAGE &&
      subnetwork.granularity() == v1::GRANULARITY_NEURON) {
    checks->Add("spec.subnetwork.batchNorm", "average",
                "needs whole blocks, and spec.subnetwork.granularity is neuron", "use estimate");
  }
  const bool full = subnetwork.scheme() == v1::MASK_SCHEME_FULL;
  if (full && !subnetwork.coverage_auto() && subnetwork.coverage() > 0 && subnetwork.coverage() < 1) {
    checks->Add("spec.subnetwork.coverage", Show(subnetwork.coverage()),
                "must be 1 with spec.subnetwork.scheme full",
                "use scheme auto, cyclic, random_balanced, size_aware or placed for less");
  }
  checks->KnownEnum("spec.subnetwork.residualScale", subnetwork.residual_scale());
  checks->AtLeast<int64_t>("spec.subnetwork.resampleEvery", subnetwork.resample_every(), 0);
}

void CheckRegimes(const v1::TrainingJobSpec& spec, Checks* checks) {
  checks->KnownEnum("spec.sharding", spec.sharding());
  if (spec.sharding() == v1::SHARDING_FSDP && spec.subnetwork().masking() == v1::MASKING_BACKWARD &&
      spec.subnetwork().absent_weights() == v1::ABSENT_WEIGHTS_STORED) {
    checks->Add("spec.subnetwork.absentWeights", "stored",
                "excludes spec.sharding fsdp, which keeps no whole weights", "use streamed, or leave it out");
  }
  checks->KnownEnum("spec.activationCheckpointing", spec.activation_checkpointing());
  checks->Within<int32_t>("spec.activationCheckpointingEvery", spec.activation_checkpointing_every(), 1,
                          65536);
  checks->KnownEnum("spec.gradientPrecision", spec.gradient_precision());
  checks->BelowOne("spec.regularization.stochasticDepth", spec.regularization().stochastic_depth());
  checks->BelowOne("spec.regularization.dropout", spec.regularization().dropout());
}

void CheckOptimizer(const v1::OptimizerSpec& optimizer, Checks* checks) {
  if (optimizer.name() != "adamw" && optimizer.name() != "sgd") {
    checks->Add("spec.optimizer.name", Show(optimizer.name()), "is no optimizer", "use adamw or sgd");
  }
  checks->Above("spec.optimizer.learningRate", optimizer.learning_rate(), 0, 10);
  checks->BelowOne("spec.optimizer.beta1", optimizer.beta1());
  checks->BelowOne("spec.optimizer.beta2", optimizer.beta2());
  checks->Above("spec.optimizer.epsilon", optimizer.epsilon(), 0, 1);
  checks->Within<double>("spec.optimizer.weightDecay", optimizer.weight_decay(), 0, 1);
  if (optimizer.has_momentum() && optimizer.name() == "adamw") {
    checks->Add("spec.optimizer.momentum", Show(optimizer.momentum()), "is not a field of adamw",
                "remove it: adamw has beta1");
  } else if (optimizer.has_momentum()) {
    checks->BelowOne("spec.optimizer.momentum", optimizer.momentum());
  }
  checks->AtLeast<double>("spec.optimizer.clipNorm", optimizer.clip_norm(), 0);
}

void CheckSchedule(const v1::ScheduleSpec& schedule, Checks* checks) {
  if (schedule.has_epochs()) {
    checks->Above("spec.schedule.epochs", schedule.epochs(), 0, 1e6);
    if (schedule.has_steps() || schedule.has_tokens()) {
      checks->Add("spec.schedule.epochs", Show(schedule.epochs()), "excludes spec.schedule.steps and tokens",
                  "keep one of them");
    }
  } else if (!schedule.has_steps() && !schedule.has_tokens()) {
    checks->Add("spec.schedule", "", "needs a length", "set steps, tokens or epochs");
  }
  if (schedule.has_steps() && schedule.has_tokens()) {
    checks->Add("spec.schedule.tokens", Show(schedule.tokens()), "excludes spec.schedule.steps",
                "keep one of them");
  }
  if (schedule.has_steps()) checks->AtLeast<int64_t>("spec.schedule.steps", schedule.steps(), 1);
  if (schedule.has_tokens()) checks->AtLeast<int64_t>("spec.schedule.tokens", schedule.tokens(), 1);
  if (schedule.has_warmup_steps()) {
    checks->AtLeast<int64_t>("spec.schedule.warmupSteps", schedule.warmup_steps(), 0);
    if (schedule.has_steps() && schedule.steps() >= 1 && schedule.warmup_steps() >= schedule.steps()) {
      checks->Add("spec.schedule.warmupSteps", Show(schedule.warmup_steps()),
                  absl::StrCat("must be below spec.schedule.steps, ", schedule.steps()),
                  absl::StrCat("use ", schedule.steps() / 20, ", 5 % of the run"));
    }
  }
  checks->KnownEnum("spec.schedule.decay", schedule.decay());
  checks->Within<double>("spec.schedule.finalLearningRateRatio", schedule.final_learning_rate_ratio(), 0, 1);
  checks->Within<int32_t>("spec.schedule.accumulation", schedule.accumulation(), 1, 65536);
}

void CheckPeriods(const v1::TrainingJobSpec& spec, Checks* checks) {
  checks->AtLeast<int64_t>("spec.evaluation.interval", spec.evaluation().interval(), 0);
  checks->AtLeast<int64_t>("spec.evaluation.tokens", spec.evaluation().tokens(), 0);
  if (spec.evaluation().interval() > 0 && spec.data().validation().empty()) {
    checks->Add("spec.evaluation.interval", Show(spec.evaluation().interval()), "needs spec.data.validation",
                "set spec.data.validation, or interval to 0");
  }
  checks->AtLeast<int64_t>("spec.checkpoint.interval", spec.checkpoint().interval(), 0);
  checks->Within<int32_t>("spec.checkpoint.keep", spec.checkpoint().keep(), 1, 1000);
  checks->AtLeast<int64_t>("spec.checkpoint.keepEvery", spec.checkpoint().keep_every(), 0);
}

void CheckPerWorker(const v1::TrainingJobSpec& spec, Checks* checks) {
  const auto& workers = spec.resources().per_worker();
  if (!workers.empty() && workers.size() != spec.workers().count()) {
    checks->Add("spec.resources.perWorker", absl::StrCat(workers.size(), " entries"),
                absl::StrCat("must have one for each of spec.workers.count, ", spec.workers().count()),
                "give one entry per rank, or none");
  }
  for (int w = 0; w < workers.size(); ++w) {
    const std::string path = absl::StrCat("spec.resources.perWorker[", w, "]");
    checks->AtLeast<int64_t>(path + ".memoryLimitBytes", workers[w].memory_limit_bytes(), 0);
    checks->Above(path + ".speed", workers[w].speed(), 0, 1e6);
    checks->AtLeast<int64_t>(path + ".bandwidthBytesPerSecond", workers[w].bandwidth_bytes_per_second(), 0);
    if (workers[w].has_flops_per_second()) {
      checks->Above(path + ".flopsPerSecond", workers[w].flops_per_second(), 0, 1e20);
    } else if (workers[0].has_flops_per_second()) {
      checks->Add(path + ".flopsPerSecond", "", "is missing", "give it for all workers, or speed for all");
    }
  }
  const v1::MaskScheme scheme = spec.subnetwork().scheme();
  if (spec.workers().balance_batch() && scheme != v1::MASK_SCHEME_AUTO && scheme != v1::MASK_SCHEME_PLACED) {
    checks->Add("spec.workers.balanceBatch", "true", "needs a scheme that weighs workers",
                "set spec.subnetwork.scheme to auto or placed");
  }
}

void CheckResources(const v1::TrainingJobSpec& spec, Checks* checks) {
  checks->AtLeast<int64_t>("spec.resources.memoryLimitBytes", spec.resources().memory_limit_bytes(), 0);
  CheckPerWorker(spec, checks);
  if (spec.resources().has_cpu_threads()) {
    checks->Within<int32_t>("spec.resources.cpuThreads", spec.resources().cpu_threads(), 1, 1024);
  }
  if (spec.resources().gpus() < 0) {
    checks->AtLeast<int32_t>("spec.resources.gpus", spec.resources().gpus(), 0);
  } else if (spec.resources().gpus() > 1) {
    checks->NotYet("spec.resources.gpus", Show(spec.resources().gpus()),
                   "use 1 and more workers: each computes on one GPU");
  }
  if (spec.backend() == v1::BACKEND_NCCL && spec.resources().gpus() == 0) {
    checks->Add("spec.backend", "nccl", "needs GPUs",
                "set spec.resources.gpus to 1, or use gloo or auto: workers then train on the CPU");
  } else if (!v1::Backend_IsValid(spec.backend())) {
    checks->Add("spec.backend", Show(static_cast<int32_t>(spec.backend())), "is not a known value");
  }
}

void CheckRetriesAndDeadlines(const v1::RetrySpec& retry, const v1::DeadlinesSpec& deadlines,
                              Checks* checks) {
  checks->Within<int32_t>("spec.retry.infrastructure", retry.infrastructure(), 0, 1000);
  checks->Within<int32_t>("spec.retry.outOfMemory", retry.out_of_memory(), 0, 1000);
  checks->Within<int32_t>("spec.retry.application", retry.application(), 0, 1000);
  checks->NotNegative("spec.retry.backoff", retry.backoff());
  checks->NotNegative("spec.deadlines.queue", deadlines.queue());
  checks->NotNegative("spec.deadlines.start", deadlines.start());
  checks->NotNegative("spec.deadlines.rendezvous", deadlines.rendezvous());
  checks->NotNegative("spec.deadlines.firstStep", deadlines.first_step());
  checks->NotNegative("spec.deadlines.step", deadlines.step());
  checks->NotNegative("spec.deadlines.checkpoint", deadlines.checkpoint());
  checks->NotNegative("spec.deadlines.drain", deadlines.drain());
}

// Values may be secrets and are never shown.
void CheckEnvironment(const v1::TrainingJobSpec& spec, Checks* checks) {
  const std::map<std::string, std::string> sorted(spec.env().begin(), spec.env().end());
  for (const auto& [name, value] : sorted) {
    bool good = !name.empty() && !absl::ascii_isdigit(name[0]);
    for (const char c : name) good = good && (absl::ascii_isalnum(c) || c == '_');
    if (!good) checks->Add("spec.env", Show(name), "must be names of letters, digits and _, no digit first");
    if (name.rfind("TESSERA_", 0) == 0)
      checks->Add("spec.env", Show(name), "is a name that the service sets itself", "remove it");
    if (name == "CUDA_VISIBLE_DEVICES" || name == "NVIDIA_VISIBLE_DEVICES") {
      checks->Add("spec.env", Show(name), "would name GPUs that other jobs have", "use spec.resources.gpus");
    }
    if (value == kHiddenValue) {
      checks->Add(absl::StrCat("spec.env.", name), Show(value), "stands for a value that is not shown",
                  "write the value itself");
    }
    if (value.find('\0') != std::string::npos)
      checks->Add(absl::StrCat("spec.env.", name), "", "must hold no NUL byte");
  }
}

}  // namespace

void HideEnvironment(v1::TrainingJob* job) {
  if (job->spec().env().empty()) return;
  for (auto& [name, value] : *job->mutable_spec()->mutable_env()) value = kHiddenValue;
}

std::vector<Violation> Validate(const v1::TrainingJob& job) {
  Checks checks;
  const v1::TrainingJobSpec& spec = job.spec();
  if (!job.name().empty()) CheckLabel("name", job.name(), &checks);
  CheckLabel("namespace", job.namespace_(), &checks);
  CheckModel(spec.model(), &checks);
  CheckData(spec.data(), &checks);
  CheckPaths(spec, &checks);
  CheckWorkers(spec.workers(), &checks);
  CheckElastic(spec, &checks);
  CheckSubnetwork(spec.subnetwork(), spec.workers().count(), &checks);
  CheckDropping(spec, &checks);
  CheckRegimes(spec, &checks);
  checks.KnownEnum("spec.precision", spec.precision());
  CheckOptimizer(spec.optimizer(), &checks);
  CheckSchedule(spec.schedule(), &checks);
  CheckPeriods(spec, &checks);
  CheckResources(spec, &checks);
  CheckRetriesAndDeadlines(spec.retry(), spec.deadlines(), &checks);
  if (!spec.queue().empty()) CheckLabel("spec.queue", spec.queue(), &checks);
  checks.NotNegative("spec.ttlAfterFinished", spec.ttl_after_finished());
  CheckEnvironment(spec, &checks);
  return checks.Take();
}

}  // namespace tessera::spec
