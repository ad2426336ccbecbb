#include "worker/control/job_options.h"

#include <gtest/gtest.h>

#include "tests/status.h"
#include "tests/worker/parallel/toy_model.h"

namespace tessera::worker {
namespace {

v1::Assignment MakeAssignment() {
  v1::Assignment assignment;
  assignment.set_world_size(2);
  v1::TrainingJobSpec* spec = assignment.mutable_spec();
  spec->mutable_workers()->set_batch(4);
  spec->mutable_data()->set_sequence_length(10);
  spec->mutable_schedule()->set_steps(100);
  spec->mutable_schedule()->set_seed(9);
  return assignment;
}

plan::MaskPlan MakePlan() {
  plan::MaskRequest request;
  request.workers = 2;
  request.scheme = plan::Scheme::kFull;
  return *plan::MakeMaskPlan(ToyModel(4).shape(), request);
}

TEST(JobOptionsTest, EveryFieldThatNoWorkerSupportsIsRefusedByName) {
  const std::pair<const char*, void (*)(v1::TrainingJobSpec*)> cases[] = {
      {"spec.activation_checkpointing",
       [](auto* s) { s->set_activation_checkpointing(v1::ACTIVATION_CHECKPOINTING_AUTO); }},
      {"spec.resources.gpus", [](auto* s) { s->mutable_resources()->set_gpus(2); }},
  };
  EXPECT_OK(CheckSupported(MakeAssignment().spec()));
  for (const auto& [field, change] : cases) {
    v1::Assignment assignment = MakeAssignment();
    change(assignment.mutable_spec());
    const absl::Status status = TrainerOptionsOf(assignment, MakePlan(), 1000).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << field;
    EXPECT_NE(status.message().find(std::string(field) + ":"), std::string::npos) << status;
  }
}

TEST(JobOptionsTest, NcclIsForGpus) {
  v1::TrainingJobSpec spec = MakeAssignment().spec();
  spec.set_backend(v1::BACKEND_NCCL);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckSupported(spec))) << CheckSupported(spec);
  spec.mutable_resources()->set_gpus(1);
  EXPECT_OK(CheckSupported(spec));
}

TEST(JobOptionsTest, BatchesOfThePlanReachTheTrainer) {
  v1::Assignment assignment = MakeAssignment();
  auto& samples = *assignment.mutable_plan()->mutable_inputs()->mutable_samples();
  samples.Add(2);
  samples.Add(6);
  const auto options = TrainerOptionsOf(assignment, MakePlan(), 1000);
  ASSERT_OK(options);
  EXPECT_EQ(options->shares, (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(options->batch, 2) << "an evaluation takes no more than the smallest worker can";
  samples.Add(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(TrainerOptionsOf(assignment, MakePlan(), 1000).status()));
  samples.Clear();
  samples.Add(8);
  samples.Add(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(TrainerOptionsOf(assignment, MakePlan(), 1000).status()));
}

TEST(JobOptionsTest, RegimesReachTheTrainer) {
  v1::Assignment assignment = MakeAssignment();
  v1::TrainingJobSpec* spec = assignment.mutable_spec();
  spec->mutable_subnetwork()->set_masking(v1::MASKING_BACKWARD);
  spec->mutable_subnetwork()->set_absent_weights(v1::ABSENT_WEIGHTS_STREAMED);
  spec->set_sharding(v1::SHARDING_FSDP);
  spec->mutable_subnetwork()->set_resample_every(5);
  assignment.mutable_plan()->mutable_inputs()->set_seed(77);
  spec->set_activation_checkpointing(v1::ACTIVATION_CHECKPOINTING_ALWAYS);
  spec->set_activation_checkpointing_every(2);
  spec->set_gradient_precision(v1::PRECISION_BF16);
  spec->set_precision(v1::PRECISION_BF16);
  spec->mutable_optimizer()->set_name("sgd");
  spec->mutable_optimizer()->set_momentum(0.8);
  spec->mutable_schedule()->set_decay(v1::DECAY_STEP);
  spec->mutable_regularization()->set_stochastic_depth(0.1);
  const auto options = TrainerOptionsOf(assignment, MakePlan(), 1000);
  ASSERT_OK(options);
  EXPECT_TRUE(options->store.backward_masking && options->store.streamed && options->store.sharded);
  EXPECT_EQ(options->runner.checkpoint_every, 2);
  EXPECT_EQ(options->masks.every, 5);
  EXPECT_EQ(options->masks.seed, 77u);
  EXPECT_EQ(options->runner.stochastic_depth, 0.1);
  EXPECT_EQ(options->reducer.wire, WireType::kBFloat16);
  EXPECT_TRUE(options->bf16);
  EXPECT_EQ(options->optimizer.name, "sgd");
  EXPECT_EQ(options->optimizer.momentum, 0.8);
  EXPECT_EQ(options->schedule.decay, Decay::kStep);
}

TEST(JobOptionsTest, CredentialsInTheEnvironmentDoNotReachTheManifests) {
  v1::Assignment assignment = MakeAssignment();
  (*assignment.mutable_spec()->mutable_env())["TOKEN"] = "hunter2";
  const auto options = TrainerOptionsOf(assignment, MakePlan(), 1000);
  ASSERT_OK(options);
  EXPECT_NE(options->job.find("sequenceLength"), std::string::npos) << options->job;
  EXPECT_EQ(options->job.find("hunter2"), std::string::npos) << options->job;
}

TEST(JobOptionsTest, ASlowLoaderIsNoLostPeer) {
  v1::DeadlinesSpec deadlines;
  deadlines.mutable_step()->set_seconds(30);
  deadlines.mutable_checkpoint()->set_seconds(30);
  deadlines.mutable_first_step()->set_seconds(1800);
  EXPECT_EQ(CollectiveTimeout(deadlines), absl::Minutes(30));
}

TEST(JobOptionsTest, LengthComesFromThePlanThenStepsTokensOrEpochs) {
  v1::Assignment assignment = MakeAssignment();
  const plan::MaskPlan plan = MakePlan();
  EXPECT_EQ(TrainerOptionsOf(assignment, plan, 1000)->schedule.total_steps, 100);
  EXPECT_EQ(TrainerOptionsOf(assignment, plan, 1000)->schedule.warmup_steps, 5);
  assignment.mutable_plan()->set_total_steps(130);
  EXPECT_EQ(TrainerOptionsOf(assignment, plan, 1000)->schedule.total_steps, 130);
  assignment.mutable_plan()->clear_total_steps();
  assignment.mutable_spec()->mutable_schedule()->clear_steps();
  EXPECT_TRUE(absl::IsInvalidArgument(TrainerOptionsOf(assignment, plan, 1000).status()));
  assignment.mutable_spec()->mutable_schedule()->set_tokens(801);  // 80 a step
  EXPECT_EQ(TrainerOptionsOf(assignment, plan, 1000)->schedule.total_steps, 11);
  assignment.mutable_spec()->mutable_schedule()->clear_tokens();
  assignment.mutable_spec()->mutable_schedule()->set_epochs(2);
  EXPECT_EQ(TrainerOptionsOf(assignment, plan, 1000)->schedule.total_steps, 250);
  EXPECT_EQ(TrainerOptionsOf(assignment, plan, 1000)->end_of_data, 2000);
}

}  // namespace
}  // namespace tessera::worker
