// Plans for workers that differ in speed or link, and what images need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "scheduler/plan/counter_random.h"
#include "tests/scheduler/wire/measured_llama.h"
#include "tests/status.h"

namespace tessera::wire {
namespace {

using plan::testing::ResNet18CifarShape;
using ::testing::ElementsAre;

plan::ModelShape TimedLlama() {
  plan::ModelShape shape = MeasuredLlama();
  for (plan::BlockActivation& kind : shape.activations.kinds) kind.seconds_per_token = 1e-4;
  shape.activations.head_seconds_per_token = 1e-4;
  return shape;
}

TEST(PlanJobTest, TheBatchIsDividedByWhatWorkersCanDo) {
  const plan::ModelShape shape = TimedLlama();
  v1::TrainingJobSpec spec = ResolvedSpec();
  spec.mutable_subnetwork()->set_scheme(v1::MASK_SCHEME_AUTO);
  spec.mutable_subnetwork()->set_coverage(1);
  spec.mutable_workers()->set_batch(8);
  const std::vector<plan::WorkerCapacity> capacities = {
      {.relative_speed = 1}, {.relative_speed = 1}, {.relative_speed = 2}, {.relative_speed = 4}};
  const PlanContext context{.cores_per_worker = 1};
  const v1::Plan equal = Planned(shape, spec, context, capacities);
  for (const auto& worker : equal.workers()) EXPECT_EQ(worker.batch(), 8);
  spec.mutable_workers()->set_balance_batch(true);
  const v1::Plan plan = Planned(shape, spec, context, capacities);
  std::vector<int64_t> batches;
  for (const auto& worker : plan.workers()) batches.push_back(worker.batch());
  EXPECT_EQ(std::accumulate(batches.begin(), batches.end(), int64_t{0}), 32)
      << "the step has as many samples";
  EXPECT_THAT(batches, ElementsAre(4, 4, 8, 16));
  EXPECT_LT(plan.predicted_step_seconds(), 0.6 * equal.predicted_step_seconds());
  EXPECT_THAT(plan.inputs().samples(), ElementsAre(4, 4, 8, 16));
  // A worker's memory is that of its own batch.
  EXPECT_LT(plan.workers(0).memory().peak(), equal.workers(0).memory().peak());
  EXPECT_GT(plan.workers(3).memory().peak(), equal.workers(3).memory().peak());
  v1::Plan sent;
  ASSERT_TRUE(sent.ParseFromString(plan.SerializeAsString()));
  const auto mask = RecomputeMaskPlan(shape, sent);
  ASSERT_OK(mask);
  EXPECT_EQ(mask->Fingerprint(), plan.mask_fingerprint());
}

TEST(PlanJobTest, DividedBatchesStayWithinTheMemoryOfEach) {
  const plan::ModelShape shape = TimedLlama();
  v1::TrainingJobSpec spec = ResolvedSpec();
  spec.mutable_subnetwork()->set_scheme(v1::MASK_SCHEME_PLACED);
  spec.mutable_workers()->set_balance_batch(true);
  spec.mutable_workers()->set_batch(8);
  const v1::Plan whole = Planned(shape, spec);
  int64_t peak = 0;
  for (const auto& worker : whole.workers()) peak = std::max(peak, worker.memory().peak());
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::vector<plan::WorkerCapacity> capacities;
    for (uint64_t w = 0; w < 4; ++w) {
      const double room = 1 + static_cast<double>(plan::CounterRandom(seed, w, 0, 0) % 100) / 100;
      capacities.push_back(
          {.usable_bytes = static_cast<int64_t>(room * static_cast<double>(peak)),
           .relative_speed = 1 + static_cast<double>(plan::CounterRandom(seed, w, 1, 0) % 8)});
    }
    const v1::Plan plan = Planned(shape, spec, {.cores_per_worker = 1}, capacities);
    EXPECT_EQ(plan.fit(), "fits") << "seed " << seed;
    int64_t samples = 0;
    for (const auto& worker : plan.workers()) {
      samples += worker.batch();
      EXPECT_GE(worker.batch(), 1);
      EXPECT_LE(worker.memory().peak(), capacities[worker.rank()].usable_bytes) << "seed " << seed;
    }
    EXPECT_EQ(samples, 32);
    EXPECT_OK(RecomputeMaskPlan(shape, plan));
  }
}

TEST(PlanJobTest, AWorkerBehindASlowLinkHoldsAndSendsLessAndItsTimeIsCounted) {
  const plan::ModelShape shape = TimedLlama();
  v1::TrainingJobSpec spec = ResolvedSpec();
  spec.mutable_subnetwork()->set_scheme(v1::MASK_SCHEME_AUTO);
  const std::vector<plan::WorkerCapacity> capacities = {{.bytes_per_second = 1e8},
                                                        {.bytes_per_second = 1e8},
                                                        {.bytes_per_second = 1e8},
                                                        {.bytes_per_second = 1e6}};
  const v1::Plan plan = Planned(shape, spec, {.cores_per_worker = 1}, capacities);
  for (int w = 0; w < 3; ++w) {
    EXPECT_LT(plan.workers(3).coverage(), plan.workers(w).coverage());
    EXPECT_LT(plan.workers(3).traffic_bytes_per_step(), plan.workers(w).traffic_bytes_per_step());
  }
  const v1::WorkerPlan& slow = plan.workers(3);
  EXPECT_DOUBLE_EQ(slow.communication_seconds(), static_cast<double>(slow.traffic_bytes_per_step()) / 1e6);
  EXPECT_DOUBLE_EQ(plan.predicted_step_seconds(), slow.step_seconds() + slow.communication_seconds());
}

TEST(PlanJobTest, AutomaticCheckpointingIsTakenWhereItIsNeeded) {
  plan::ModelShape shape = MeasuredLlama();
  shape.activations.kinds[0] = {
      .saved = 5'000'000, .forward_transient = 900, .backward_transient = 1500, .output = 8192};
  v1::TrainingJobSpec spec = ResolvedSpec();
  const v1::Plan plain = Planned(shape, spec);
  EXPECT_EQ(plain.activation_checkpointing(), v1::ACTIVATION_CHECKPOINTING_NEVER);
  EXPECT_EQ(plain.activation_checkpointing_reason(), "");
  spec.set_activation_checkpointing(v1::ACTIVATION_CHECKPOINTING_AUTO);
  const int64_t peak = plain.workers(0).memory().peak();
  const v1::Plan roomy = Planned(shape, spec, {.memory_limit_bytes = 2 * peak});
  EXPECT_EQ(roomy.activation_checkpointing(), v1::ACTIVATION_CHECKPOINTING_NEVER);
  EXPECT_EQ(roomy.workers(0).memory().peak(), peak);
  const v1::Plan tight = Planned(shape, spec, {.memory_limit_bytes = peak * 3 / 4});
  EXPECT_EQ(tight.activation_checkpointing(), v1::ACTIVATION_CHECKPOINTING_ALWAYS);
  EXPECT_EQ(tight.fit(), "fits");
  EXPECT_THAT(tight.activation_checkpointing_reason(), ::testing::HasSubstr("bytes are missing"));
  const v1::Plan hopeless = Planned(shape, spec, {.memory_limit_bytes = 1000});
  EXPECT_NE(hopeless.fit(), "fits");
  spec.mutable_subnetwork()->set_coverage_auto(true);
  const v1::Plan wide = Planned(shape, spec, {.memory_limit_bytes = peak * 11 / 10});
  EXPECT_EQ(wide.activation_checkpointing(), v1::ACTIVATION_CHECKPOINTING_ALWAYS);
  EXPECT_EQ(wide.inputs().coverage(), 1);
  EXPECT_THAT(wide.activation_checkpointing_reason(), ::testing::HasSubstr("on: coverage is 1 with it"));
}

TEST(PlanJobTest, AnImageIsOneTokenWhateverTheSequenceLength) {
  plan::ModelShape shape = ResNet18CifarShape();
  shape.activations = {.batch = 4, .sequence_length = 1, .base_saved = 700};
  for (const plan::Block& block : shape.blocks) {
    shape.activations.kinds.resize(std::max<size_t>(shape.activations.kinds.size(), block.kind + 1),
                                   {.saved = 5000, .forward_transient = 900, .backward_transient = 1500});
  }
  v1::TrainingJobSpec spec = ResolvedSpec();
  spec.mutable_data()->set_sequence_length(256);
  const int64_t long_sequence = Planned(shape, spec).workers(0).memory().activations();
  spec.mutable_data()->set_sequence_length(1);
  EXPECT_EQ(Planned(shape, spec).workers(0).memory().activations(), long_sequence);
}

}  // namespace
}  // namespace tessera::wire
