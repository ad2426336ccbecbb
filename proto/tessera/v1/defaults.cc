#include "proto/tessera/v1/defaults.h"

namespace tessera::spec {
namespace {

using google::protobuf::Duration;

#define TESSERA_DEFAULT(message, field, value) \
  if (!(message)->has_##field()) (message)->set_##field(value)
#define TESSERA_DEFAULT_ENUM(message, field, value) \
  if ((message)->field() == 0) (message)->set_##field(value)

void DefaultSeconds(Duration* duration, int64_t seconds) {
  if (duration->seconds() == 0 && duration->nanos() == 0) duration->set_seconds(seconds);
}

void Workers(v1::WorkersSpec* workers) {
  TESSERA_DEFAULT(workers, count, workers->has_max() ? workers->max() : 4);
  TESSERA_DEFAULT(workers, min, workers->count());
  TESSERA_DEFAULT(workers, max, workers->count());
  TESSERA_DEFAULT(workers, balance_batch, false);
  TESSERA_DEFAULT(workers, batch, 4);
}

void Subnetwork(v1::SubnetworkSpec* subnetwork, uint64_t seed) {
  TESSERA_DEFAULT_ENUM(subnetwork, granularity, v1::GRANULARITY_BLOCK);
  TESSERA_DEFAULT_ENUM(subnetwork, masking, v1::MASKING_FORWARD);
  if (!subnetwork->coverage_auto()) TESSERA_DEFAULT(subnetwork, coverage, 1.0);
  TESSERA_DEFAULT(subnetwork, min_holders, 1);
  TESSERA_DEFAULT(subnetwork, min_gap, 0.0);
  TESSERA_DEFAULT_ENUM(subnetwork, scheme, v1::MASK_SCHEME_AUTO);
  TESSERA_DEFAULT_ENUM(subnetwork, residual_scale, v1::RESIDUAL_SCALE_EVALUATION);
  TESSERA_DEFAULT(subnetwork, ends_always_on, true);
  TESSERA_DEFAULT(subnetwork, seed, seed);
  TESSERA_DEFAULT(subnetwork, resample_every, 0);
}

void Optimizer(v1::OptimizerSpec* optimizer) {
  if (optimizer->name().empty()) optimizer->set_name("adamw");
  TESSERA_DEFAULT(optimizer, learning_rate, 1e-3);
  TESSERA_DEFAULT(optimizer, beta1, 0.9);
  TESSERA_DEFAULT(optimizer, beta2, 0.95);
  TESSERA_DEFAULT(optimizer, epsilon, 1e-8);
  TESSERA_DEFAULT(optimizer, weight_decay, 0.1);
  if (optimizer->name() == "sgd") TESSERA_DEFAULT(optimizer, momentum, 0.9);
  TESSERA_DEFAULT(optimizer, clip_norm, 1.0);
}

void Schedule(v1::ScheduleSpec* schedule) {
  TESSERA_DEFAULT_ENUM(schedule, decay, v1::DECAY_COSINE);
  TESSERA_DEFAULT(schedule, flop_matched, false);
  TESSERA_DEFAULT(schedule, final_learning_rate_ratio, 0.1);
  TESSERA_DEFAULT(schedule, accumulation, 1);
  TESSERA_DEFAULT(schedule, seed, 1);
  // A run given in tokens learns its steps, and so its warm-up, when it is planned.
  if (schedule->has_steps()) TESSERA_DEFAULT(schedule, warmup_steps, schedule->steps() / 20);
}

void Dropping(v1::DroppingSpec* dropping) {
  TESSERA_DEFAULT_ENUM(dropping, mode, v1::DROPPING_MODE_OFF);
  if (dropping->mode() == v1::DROPPING_MODE_OFF) return;
  TESSERA_DEFAULT(dropping, density, 0.3);
  TESSERA_DEFAULT(dropping, warmup_fraction, 0.1);
  TESSERA_DEFAULT_ENUM(dropping, residual, v1::RESIDUAL_KEEP_AUTO);
  TESSERA_DEFAULT(dropping, freeze_unsent, false);
  TESSERA_DEFAULT(dropping, refresh, 1);
}

void Rest(v1::TrainingJobSpec* spec) {
  Dropping(spec->mutable_dropping());
  TESSERA_DEFAULT_ENUM(spec, sharding, v1::SHARDING_NONE);
  TESSERA_DEFAULT_ENUM(spec, activation_checkpointing, v1::ACTIVATION_CHECKPOINTING_NEVER);
  TESSERA_DEFAULT(spec, activation_checkpointing_every, 1);
  TESSERA_DEFAULT_ENUM(spec, precision, v1::PRECISION_FP32);
  TESSERA_DEFAULT_ENUM(spec, gradient_precision, v1::PRECISION_FP32);
  TESSERA_DEFAULT(spec->mutable_regularization(), stochastic_depth, 0.0);
  TESSERA_DEFAULT(spec->mutable_regularization(), dropout, 0.0);
  if (spec->subnetwork().absent_weights() == 0) {
    spec->mutable_subnetwork()->set_absent_weights(
        spec->sharding() == v1::SHARDING_FSDP ? v1::ABSENT_WEIGHTS_STREAMED : v1::ABSENT_WEIGHTS_STORED);
  }
  TESSERA_DEFAULT_ENUM(spec, backend, v1::BACKEND_AUTO);
  TESSERA_DEFAULT(spec->mutable_evaluation(), interval, 0);
  TESSERA_DEFAULT(spec->mutable_evaluation(), tokens, 65536);
  TESSERA_DEFAULT(spec->mutable_checkpoint(), interval, 0);
  TESSERA_DEFAULT(spec->mutable_checkpoint(), keep, 2);
  TESSERA_DEFAULT(spec->mutable_checkpoint(), export_hugging_face, true);
  TESSERA_DEFAULT(spec->mutable_checkpoint(), keep_every, 0);
  TESSERA_DEFAULT(spec->mutable_checkpoint(), allow_previous, false);
  TESSERA_DEFAULT(spec->mutable_resources(), memory_limit_bytes, 0);
  for (v1::WorkerResources& worker : *spec->mutable_resources()->mutable_per_worker()) {
    TESSERA_DEFAULT((&worker), memory_limit_bytes, spec->resources().memory_limit_bytes());
    TESSERA_DEFAULT((&worker), speed, 1.0);
    TESSERA_DEFAULT((&worker), bandwidth_bytes_per_second, 0);
  }
  TESSERA_DEFAULT(spec->mutable_resources(), gpus, 0);
  TESSERA_DEFAULT(spec, priority, 0);
  TESSERA_DEFAULT(spec, suspend, false);
}

void RetriesAndDeadlines(bool plans_again, v1::RetrySpec* retry, v1::DeadlinesSpec* deadlines) {
  TESSERA_DEFAULT(retry, infrastructure, 3);
  TESSERA_DEFAULT(retry, out_of_memory, plans_again ? 3 : 0);  // each time with less memory
  TESSERA_DEFAULT(retry, application, 0);
  DefaultSeconds(retry->mutable_backoff(), 1);
  DefaultSeconds(deadlines->mutable_start(), 120);
  DefaultSeconds(deadlines->mutable_rendezvous(), 120);
  DefaultSeconds(deadlines->mutable_first_step(), 600);
  DefaultSeconds(deadlines->mutable_step(), 300);
  DefaultSeconds(deadlines->mutable_checkpoint(), 600);
  DefaultSeconds(deadlines->mutable_drain(), 60);
}

}  // namespace

void ApplyDefaults(v1::TrainingJob* job) {
  if (job->namespace_().empty()) job->set_namespace_("default");
  v1::TrainingJobSpec* spec = job->mutable_spec();
  if (spec->data().format() == 0) spec->mutable_data()->set_format(v1::DATA_FORMAT_TOKENS);
  const bool images = spec->data().format() == v1::DATA_FORMAT_IMAGES;
  TESSERA_DEFAULT(spec->mutable_data(), sequence_length, images ? 1 : 256);
  TESSERA_DEFAULT(spec->mutable_data(), augmentation, true);
  if (spec->subnetwork().batch_norm() == 0)
    spec->mutable_subnetwork()->set_batch_norm(v1::BATCH_NORM_ESTIMATE);
  Workers(spec->mutable_workers());
  Optimizer(spec->mutable_optimizer());
  Schedule(spec->mutable_schedule());
  Subnetwork(spec->mutable_subnetwork(), spec->schedule().seed());
  Rest(spec);
  const bool plans_again = spec->subnetwork().coverage_auto() ||
                           spec->activation_checkpointing() == v1::ACTIVATION_CHECKPOINTING_AUTO;
  RetriesAndDeadlines(plans_again, spec->mutable_retry(), spec->mutable_deadlines());
}

}  // namespace tessera::spec
