#include "scheduler/wire/plan_wire.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "scheduler/plan/counter_random.h"
#include "tests/scheduler/plan/shapes.h"
#include "tests/scheduler/wire/measured_llama.h"
#include "tests/status.h"

namespace tessera::wire {
namespace {

using google::protobuf::util::MessageDifferencer;
using plan::testing::LlamaShape;
using plan::testing::ResNet18CifarShape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ShapeMessageTest, SurvivesTheRoundTrip) {
  for (const plan::ModelShape& shape : {MeasuredLlama(), ResNet18CifarShape()}) {
    v1::ModelShape sent;
    ASSERT_TRUE(sent.ParseFromString(ToMessage(shape).SerializeAsString()));
    const auto back = FromMessage(sent);
    ASSERT_OK(back);
    EXPECT_EQ(back->Fingerprint(), shape.Fingerprint());
    EXPECT_TRUE(MessageDifferencer::Equals(ToMessage(*back), ToMessage(shape)));
    ASSERT_EQ(back->activations.kinds.size(), shape.activations.kinds.size());
  }
  const auto back = FromMessage(ToMessage(MeasuredLlama()));
  EXPECT_EQ(back->activations.kinds[0].backward_transient, 1500);
  EXPECT_EQ(back->activations.head_transient, 2000);
  EXPECT_EQ(back->activations.end_peak, 2600);
}

TEST(ShapeMessageTest, NamesTheFieldThatMakesNoSense) {
  const auto complaint = [](auto change) {
    v1::ModelShape message = ToMessage(MeasuredLlama());
    change(message);
    const absl::Status status = FromMessage(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(complaint([](auto& m) { m.mutable_parameters(2)->set_block(8); }), HasSubstr("parameters[2]"));
  EXPECT_THAT(complaint([](auto& m) { m.mutable_parameters(2)->set_dims(0, 0); }), HasSubstr(".dims"));
  EXPECT_THAT(complaint([](auto& m) { m.mutable_parameters(2)->set_axes(0, 9); }), HasSubstr(".axes"));
  EXPECT_THAT(complaint([](auto& m) { m.mutable_parameters(2)->add_axes(1); }), HasSubstr(".axes"));
  EXPECT_THAT(complaint([](auto& m) { m.mutable_blocks(1)->set_kind(1); }), HasSubstr("blocks[1]"));
  EXPECT_THAT(complaint([](auto& m) { m.mutable_blocks(1)->set_flops_per_token(-1); }),
              HasSubstr("flops_per_token"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(complaint([](auto& m) { m.mutable_activations()->mutable_kinds(0)->set_saved_bytes(-1); }),
              HasSubstr("activations.kinds: has -1 bytes"));
  EXPECT_THAT(complaint([](auto& m) {
                m.mutable_activations()->mutable_kinds(0)->mutable_checkpointed()->set_saved_bytes(-2);
              }),
              HasSubstr("activations.kinds: has -2 bytes"));
  EXPECT_THAT(
      complaint([&](auto& m) { m.mutable_activations()->mutable_kinds(0)->set_seconds_per_token(nan); }),
      HasSubstr("activations.kinds: has nan"));
  EXPECT_THAT(complaint([&](auto& m) { m.mutable_process()->set_slack_ratio(nan); }),
              HasSubstr("process: has nan"));
  EXPECT_THAT(complaint([](auto& m) { m.mutable_activations()->set_base_saved_bytes(-1); }),
              HasSubstr("activations: has -1 bytes"));
  EXPECT_THAT(complaint([](auto& m) { m.mutable_blocks(1)->mutable_axes(0)->set_axis(-1); }),
              HasSubstr(".axes"));
}

TEST(MaskRequestTest, InputsSurviveTheRoundTrip) {
  for (plan::Scheme scheme : {plan::Scheme::kFull, plan::Scheme::kCyclic, plan::Scheme::kRandomBalanced,
                              plan::Scheme::kSizeAware}) {
    const plan::MaskRequest request{.workers = 3,
                                    .scheme = scheme,
                                    .coverage = 0.7,
                                    .min_holders = 2,
                                    .min_gap = 0.01,
                                    .ends_always_on = false,
                                    .seed = ~uint64_t{0},
                                    .bytes_per_element = 12,
                                    .capacities = {{100, 1}, {0, 2.5}, {300, 0.1}}};
    const v1::PlanInputs inputs = ToInputs(request, v1::MASKING_FORWARD, 99);
    const auto back = MaskRequestFrom(inputs);
    ASSERT_OK(back);
    EXPECT_TRUE(MessageDifferencer::Equals(ToInputs(*back, v1::MASKING_FORWARD, 99), inputs));
    EXPECT_EQ(back->scheme, scheme);
    EXPECT_EQ(back->capacities[1].relative_speed, 2.5);
    EXPECT_EQ(back->bytes_per_element, 12);
  }
}

TEST(MaskRequestTest, ComesFromTheResolvedJob) {
  const auto request = MaskRequestFrom(ResolvedSpec());
  ASSERT_OK(request);
  EXPECT_EQ(request->workers, 4);
  EXPECT_EQ(request->coverage, 0.5);
  EXPECT_EQ(request->seed, 7u);
  EXPECT_EQ(request->bytes_per_element, 16);
  EXPECT_TRUE(request->ends_always_on);
}

TEST(MaskRequestTest, RefusesWhatIsMissingByName) {
  const auto status = [](auto change) {
    v1::TrainingJobSpec spec = ResolvedSpec();
    change(spec);
    return MaskRequestFrom(spec).status();
  };
  const auto expect = [](const absl::Status& s, absl::StatusCode code, const char* field) {
    EXPECT_EQ(s.code(), code) << s;
    EXPECT_THAT(std::string(s.message()), HasSubstr(field));
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  expect(status([](auto& s) { s.mutable_subnetwork()->clear_coverage(); }), kInvalid,
         "spec.subnetwork.coverage");
  expect(status([](auto& s) { s.mutable_subnetwork()->clear_scheme(); }), kInvalid, "spec.subnetwork.scheme");
  expect(status([](auto& s) { s.mutable_subnetwork()->clear_seed(); }), kInvalid, "spec.subnetwork.seed");
  expect(status([](auto& s) { s.mutable_workers()->clear_count(); }), kInvalid, "spec.workers.count");
}

TEST(PlanMessageTest, SaysWhatEachWorkerHoldsNeedsAndSends) {
  const plan::ModelShape shape = MeasuredLlama();
  const v1::Plan message =
      Planned(shape, ResolvedSpec(), {.generation = 3, .epoch = 2, .reason = "first plan"});
  EXPECT_EQ(message.generation(), 3);
  EXPECT_EQ(message.epoch(), 2);
  EXPECT_EQ(message.reason(), "first plan");
  EXPECT_EQ(message.total_steps(), 100);
  EXPECT_EQ(message.fit(), "unknown");
  EXPECT_EQ(message.total_elements(), shape.elements());
  EXPECT_EQ(message.maskable_elements(), 6 * shape.block_elements(0));
  EXPECT_EQ(message.holder_sets(), 5);  // everyone and four neighbouring pairs
  EXPECT_GT(message.spectral_gap(), 0);
  EXPECT_DOUBLE_EQ(message.variance_factor(), 2);
  ASSERT_EQ(message.units_size(), 9);
  EXPECT_THAT(message.units(0).holders(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(message.units(2).holders_size(), 2);
  EXPECT_EQ(message.units(2).name(), "model.layers.1");
  ASSERT_EQ(message.workers_size(), 4);
  for (const v1::WorkerPlan& worker : message.workers()) {
    EXPECT_DOUBLE_EQ(worker.coverage(), 0.5);
    EXPECT_EQ(worker.memory().parameters(), 4 * worker.elements());
    EXPECT_GT(worker.memory().peak(), 16 * worker.elements());
    EXPECT_EQ(worker.memory().phases_size(), 7);
    EXPECT_GT(worker.traffic_bytes_per_step(), 0);
    EXPECT_LT(worker.memory().peak(), message.alternatives(0).memory_bytes());
    EXPECT_LT(worker.traffic_bytes_per_step(), message.alternatives(0).traffic_bytes_per_step());
  }
  EXPECT_EQ(message.alternatives(0).name(), "ddp");
  EXPECT_EQ(message.alternatives(1).name(), "fsdp");
}

TEST(PlanMessageTest, MasksThatChangeAreStatedWithWhatTheyMoveAndNeed) {
  const plan::ModelShape shape = MeasuredLlama();
  v1::TrainingJobSpec spec = ResolvedSpec();
  const v1::Plan still = Planned(shape, spec);
  EXPECT_FALSE(still.has_resampling());
  spec.mutable_subnetwork()->set_resample_every(30);
  const v1::Plan message = Planned(shape, spec);
  EXPECT_EQ(message.mask_fingerprint(), still.mask_fingerprint());
  EXPECT_OK(RecomputeMaskPlan(shape, message));
  EXPECT_EQ(message.inputs().resample_every(), 30);
  EXPECT_EQ(message.resampling().every(), 30);
  EXPECT_EQ(message.resampling().times(), 3);  // of 100 steps: after 30, 60 and 90
  EXPECT_GT(message.resampling().moved_share(), 0);
  EXPECT_LT(message.resampling().moved_share(), 1);
  int64_t most = 0;
  for (int w = 0; w < message.workers_size(); ++w) {
    const v1::WorkerPlan &worker = message.workers(w), &before = still.workers(w);
    EXPECT_EQ(worker.elements(), before.elements());
    EXPECT_EQ(worker.traffic_bytes_per_step(), before.traffic_bytes_per_step());
    EXPECT_EQ(worker.memory().phases(7).name(), "resample");
    EXPECT_GT(worker.memory().phases(7).peak_bytes(), 12 * worker.elements());
    EXPECT_GE(worker.memory().peak(), before.memory().peak());
    most += worker.resample_bytes();
  }
  EXPECT_GE(most, message.resampling().bytes());
  EXPECT_GT(message.resampling().bytes(), 0);
  const absl::Status unlike = PlanJob(ResNet18CifarShape(), spec, {}).status();
  EXPECT_EQ(unlike.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unlike.message()), HasSubstr("spec.subnetwork.resampleEvery"));
}

TEST(PlanMessageTest, FlopMatchingAndTokensSetTheNumberOfSteps) {
  v1::TrainingJobSpec spec = ResolvedSpec();
  spec.mutable_schedule()->set_flop_matched(true);
  const v1::Plan matched = Planned(MeasuredLlama(), spec);
  EXPECT_GT(matched.total_steps(), 100);
  EXPECT_LT(matched.total_steps(), 200);
  spec.mutable_schedule()->Clear();
  spec.mutable_schedule()->set_tokens(4 * 4 * 32 * 10 + 1);  // workers, batch, length: ten steps and a token
  EXPECT_EQ(Planned(MeasuredLlama(), spec).total_steps(), 11);
  spec.mutable_schedule()->Clear();
  EXPECT_EQ(Planned(MeasuredLlama(), spec, {.steps = 77}).total_steps(), 77);
}

TEST(PlanMessageTest, AStepTakesWhatTheSlowestWorkerHolds) {
  plan::ModelShape shape = MeasuredLlama();
  v1::TrainingJobSpec spec = ResolvedSpec();
  EXPECT_EQ(Planned(shape, spec, {.cores_per_worker = 1}).predicted_step_seconds(), 0) << "not measured";
  shape.activations.kinds[0].seconds_per_token = 1e-3;
  shape.activations.head_seconds_per_token = 5e-3;
  EXPECT_EQ(Planned(shape, spec).predicted_step_seconds(), 0) << "on unknown cores";
  // 4 x 32 tokens; of 8 blocks the two ends and half of the six others.
  EXPECT_NEAR(Planned(shape, spec, {.cores_per_worker = 2}).predicted_step_seconds(), 128 * (5e-3 + 5e-3) / 2,
              1e-9);
}

TEST(PlanMessageTest, AnUnmeasuredModelIsNotSaidToFit) {
  EXPECT_EQ(Planned(LlamaShape(), ResolvedSpec(), {.memory_limit_bytes = int64_t{1} << 50}).fit(), "unknown");
}

TEST(RecomputeMaskPlanTest, AWorkerDerivesTheSamePlan) {
  const plan::ModelShape shape = MeasuredLlama();
  for (v1::MaskScheme scheme :
       {v1::MASK_SCHEME_CYCLIC, v1::MASK_SCHEME_RANDOM_BALANCED, v1::MASK_SCHEME_SIZE_AWARE}) {
    v1::TrainingJobSpec spec = ResolvedSpec();
    spec.mutable_subnetwork()->set_scheme(scheme);
    v1::Plan sent;
    ASSERT_TRUE(sent.ParseFromString(Planned(shape, spec).SerializeAsString()));
    const auto mask = RecomputeMaskPlan(shape, sent);
    ASSERT_OK(mask);
    EXPECT_EQ(mask->Fingerprint(), sent.mask_fingerprint());
    for (int u = 0; u < sent.units_size(); ++u) {
      const auto& planned = sent.units(u).holders();
      EXPECT_EQ(std::vector<int>(planned.begin(), planned.end()),
                std::vector<int>(mask->Holders(u).begin(), mask->Holders(u).end()));
    }
  }
}

TEST(RecomputeMaskPlanTest, UnequalCapacitiesTravelWithThePlan) {
  const plan::ModelShape shape = MeasuredLlama();
  v1::TrainingJobSpec spec = ResolvedSpec();
  spec.mutable_subnetwork()->set_scheme(v1::MASK_SCHEME_SIZE_AWARE);
  const std::vector<plan::WorkerCapacity> capacities = {{0, 1}, {0, 1}, {0, 2}, {0, 3}};
  const v1::Plan plan = Planned(shape, spec, {}, capacities);
  EXPECT_GT(plan.workers(3).flops_per_token(), plan.workers(0).flops_per_token());
  const auto mask = RecomputeMaskPlan(shape, plan);
  EXPECT_OK(mask);
}

TEST(RecomputeMaskPlanTest, ADifferenceInShapeOrMaskStopsTheWorker) {
  const plan::ModelShape shape = MeasuredLlama();
  const v1::Plan plan = Planned(shape, ResolvedSpec());
  plan::ModelShape other = shape;
  other.parameters[1].dims[0] += 1;
  const absl::Status shapes = RecomputeMaskPlan(other, plan).status();
  EXPECT_EQ(shapes.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(shapes.message()), HasSubstr("shape"));

  v1::Plan changed = plan;
  changed.mutable_inputs()->set_coverage(0.75);
  const absl::Status masks = RecomputeMaskPlan(shape, changed).status();
  EXPECT_EQ(masks.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(masks.message()), HasSubstr("mask plan"));
}

}  // namespace
}  // namespace tessera::wire
