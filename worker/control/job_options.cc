#include "worker/control/job_options.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "google/protobuf/util/json_util.h"
#include "scheduler/plan/flop_matching.h"

namespace tessera::worker {
namespace {

absl::Status Refuse(const char* field, const std::string& value, const char* instead) {
  return absl::UnimplementedError(
      absl::StrCat("spec.", field, ": ", value, " is not supported yet; use ", instead));
}

template <typename E>
bool OneOf(E value, std::initializer_list<E> allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

ResidualScale ResidualOf(v1::ResidualScale residual) {
  if (residual == v1::RESIDUAL_SCALE_NONE) return ResidualScale::kNone;
  if (residual == v1::RESIDUAL_SCALE_TRAIN_INVERSE) return ResidualScale::kTrainInverse;
  return ResidualScale::kEvaluation;
}

Decay DecayOf(v1::Decay decay) {
  if (decay == v1::DECAY_STEP) return Decay::kStep;
  if (decay == v1::DECAY_LINEAR) return Decay::kLinear;
  if (decay == v1::DECAY_CONSTANT) return Decay::kConstant;
  return Decay::kCosine;
}

ResidualKeep ResidualKeepOf(v1::ResidualKeep residual) {
  if (residual == v1::RESIDUAL_KEEP_BF16) return ResidualKeep::kBf16;
  if (residual == v1::RESIDUAL_KEEP_FP32) return ResidualKeep::kFp32;
  return ResidualKeep::kNone;
}

// None when the plan has decided against dropping, or was not asked for it.
absl::StatusOr<std::optional<DroppingOptions>> DroppingOf(const v1::DroppingPlan& plan, uint64_t seed) {
  if (plan.mode() != v1::DROPPING_MODE_ENFORCE) return std::nullopt;
  DroppingOptions options;
  TESSERA_ASSIGN_OR_RETURN(options.rule, FindDroppingRule(plan.rule()));
  options.importance_share = plan.importance_share();
  options.refresh = std::max<int64_t>(1, plan.refresh());
  options.residual = ResidualKeepOf(plan.residual());
  options.freeze_unsent = plan.freeze_unsent();
  options.seed = seed;
  options.kept.assign(plan.kept().begin(), plan.kept().end());
  options.worker_shares.assign(plan.worker_shares().begin(), plan.worker_shares().end());
  return options;
}

absl::Duration DurationOf(const google::protobuf::Duration& duration, absl::Duration otherwise) {
  const absl::Duration given = absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
  return given > absl::ZeroDuration() ? given : otherwise;
}

// The plan's, which has flop matching in it; a schedule in epochs is resolved here, where the data are.
absl::StatusOr<int64_t> TotalSteps(const v1::Assignment& assignment, const plan::MaskPlan& plan,
                                   int64_t samples) {
  if (assignment.plan().total_steps() > 0) return assignment.plan().total_steps();
  const v1::TrainingJobSpec& spec = assignment.spec();
  const double samples_per_step = static_cast<double>(spec.workers().batch()) * assignment.world_size() *
                                  std::max(1, spec.schedule().accumulation());
  double steps = 0;
  if (spec.schedule().has_steps()) {
    steps = static_cast<double>(spec.schedule().steps());
  } else if (spec.schedule().has_tokens()) {
    const double tokens_per_step = samples_per_step * static_cast<double>(spec.data().sequence_length());
    steps = std::ceil(static_cast<double>(spec.schedule().tokens()) / tokens_per_step);
  } else if (spec.schedule().has_epochs()) {
    steps = std::ceil(spec.schedule().epochs() * static_cast<double>(samples) / samples_per_step);
  } else {
    return absl::InvalidArgumentError("spec.schedule: one of steps, tokens, epochs must be given");
  }
  const auto whole = std::max<int64_t>(1, static_cast<int64_t>(steps));
  if (!spec.schedule().flop_matched()) return whole;
  return plan::FlopMatchedSteps(plan, whole, spec.subnetwork().masking() == v1::MASKING_BACKWARD);
}

}  // namespace

absl::Status CheckSupported(const v1::TrainingJobSpec& spec) {
  if (spec.activation_checkpointing() == v1::ACTIVATION_CHECKPOINTING_AUTO) {
    return Refuse("activation_checkpointing", "auto", "never or always");
  }
  if (spec.backend() == v1::BACKEND_NCCL && spec.resources().gpus() == 0) {
    return absl::InvalidArgumentError("spec.backend: nccl needs spec.resources.gpus 1");
  }
  if (spec.resources().gpus() > 1)
    return Refuse("resources.gpus", absl::StrCat(spec.resources().gpus()), "1");
  return absl::OkStatus();
}

absl::StatusOr<TrainerOptions> TrainerOptionsOf(const v1::Assignment& assignment, const plan::MaskPlan& plan,
                                                int64_t samples) {
  const v1::TrainingJobSpec& spec = assignment.spec();
  TESSERA_RETURN_IF_ERROR(CheckSupported(spec));
  TrainerOptions options;
  options.seed = spec.schedule().seed();
  options.batch = spec.workers().batch();
  const auto& shares = assignment.plan().inputs().samples();
  options.shares.assign(shares.begin(), shares.end());
  if (!options.shares.empty()) {
    if (static_cast<int>(options.shares.size()) != assignment.world_size() ||
        *std::min_element(options.shares.begin(), options.shares.end()) < 1) {
      return absl::FailedPreconditionError(absl::StrCat("the plan gives ", options.shares.size(),
                                                        " batches, for ", assignment.world_size(),
                                                        " workers; each must have at least one sample"));
    }
    // Evaluation gives all the same, which must fit the one that has least room.
    options.batch = *std::min_element(options.shares.begin(), options.shares.end());
  }
  options.targets_per_sample = spec.data().sequence_length();
  options.accumulation = std::max(1, spec.schedule().accumulation());
  TESSERA_ASSIGN_OR_RETURN(options.schedule.total_steps, TotalSteps(assignment, plan, samples));
  if (spec.schedule().has_epochs() && !spec.schedule().flop_matched()) {
    options.end_of_data = std::max<int64_t>(
        1, std::llround(std::ceil(spec.schedule().epochs() * static_cast<double>(samples))));
  }
  options.schedule.peak = spec.optimizer().learning_rate();
  options.schedule.warmup_steps =
      spec.schedule().has_warmup_steps() ? spec.schedule().warmup_steps() : options.schedule.total_steps / 20;
  options.schedule.decay = DecayOf(spec.schedule().decay());
  options.schedule.final_ratio = spec.schedule().final_learning_rate_ratio();
  if (!spec.optimizer().name().empty()) options.optimizer.name = spec.optimizer().name();
  options.optimizer.momentum = spec.optimizer().momentum();
  options.optimizer.beta1 = spec.optimizer().beta1();
  options.optimizer.beta2 = spec.optimizer().beta2();
  options.optimizer.epsilon = spec.optimizer().epsilon();
  options.optimizer.weight_decay = spec.optimizer().weight_decay();
  options.clip_norm = spec.optimizer().clip_norm();
  options.masks.every = spec.subnetwork().resample_every();
  options.masks.seed = assignment.plan().inputs().seed();
  options.bf16 = spec.precision() == v1::PRECISION_BF16;
  options.store.backward_masking = spec.subnetwork().masking() == v1::MASKING_BACKWARD;
  options.store.streamed =
      options.store.backward_masking && spec.subnetwork().absent_weights() == v1::ABSENT_WEIGHTS_STREAMED;
  options.store.sharded = spec.sharding() == v1::SHARDING_FSDP;
  options.runner.residual = ResidualOf(spec.subnetwork().residual_scale());
  options.norm_estimate = spec.subnetwork().batch_norm() == v1::BATCH_NORM_AVERAGE ? NormEstimate::kAveraged
                                                                                   : NormEstimate::kAssembled;
  if (spec.activation_checkpointing() == v1::ACTIVATION_CHECKPOINTING_ALWAYS) {
    options.runner.checkpoint_every = std::max(1, spec.activation_checkpointing_every());
  }
  options.runner.stochastic_depth = spec.regularization().stochastic_depth();
  options.runner.dropout = spec.regularization().dropout();
  if (spec.gradient_precision() == v1::PRECISION_BF16) options.reducer.wire = WireType::kBFloat16;
  options.evaluation_interval = spec.evaluation().interval();
  options.evaluation_tokens = spec.evaluation().tokens();
  options.checkpoint_directory = assignment.checkpoint_directory();
  options.checkpoint_interval = spec.checkpoint().interval();
  options.retention.keep = spec.checkpoint().keep();
  options.retention.keep_every = spec.checkpoint().keep_every();
  options.allow_previous = spec.checkpoint().allow_previous();
  options.resume_from = assignment.resume_from();
  options.initial_weights = spec.model().initial_weights();
  // Whoever reads a checkpoint later finds the job in it, in the form of a job file. Checkpoints
  // are passed on; the environment may hold credentials.
  v1::TrainingJobSpec told = spec;
  told.clear_env();
  google::protobuf::util::MessageToJsonString(told, &options.job).ok();
  TESSERA_ASSIGN_OR_RETURN(options.dropping, DroppingOf(assignment.plan().dropping(), options.seed));
  options.dropping_first_step = assignment.plan().dropping().first_step();
  options.statistics_step = assignment.plan().dropping().statistics_step();
  options.statistics_interval = assignment.plan().dropping().recompute();
  options.drift = assignment.plan().dropping().drift();
  return options;
}

absl::Duration CollectiveTimeout(const v1::DeadlinesSpec& deadlines) {
  return std::max({DurationOf(deadlines.step(), absl::Seconds(300)),
                   DurationOf(deadlines.first_step(), absl::Seconds(600)),
                   DurationOf(deadlines.checkpoint(), absl::Seconds(600))});
}

absl::Duration RendezvousTimeout(const v1::DeadlinesSpec& deadlines) {
  return DurationOf(deadlines.rendezvous(), absl::Seconds(120));
}

}  // namespace tessera::worker
