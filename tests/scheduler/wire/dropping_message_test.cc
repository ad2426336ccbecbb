#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "scheduler/plan/dropping_cost.h"
#include "scheduler/wire/plan_wire.h"
#include "tests/scheduler/plan/shapes.h"
#include "tests/status.h"

namespace tessera::wire {
namespace {

using plan::testing::LlamaShape;
using ::testing::HasSubstr;

plan::ModelShape Shape() {
  plan::ModelShape shape =
      LlamaShape({.hidden = 64, .layers = 8, .heads = 4, .kv_heads = 2, .ffn = 128, .vocab = 256});
  shape.activations = {.batch = 4, .sequence_length = 32, .kinds = {{.saved = 5000}}};
  return shape;
}

v1::TrainingJobSpec Spec(double coverage = 1) {
  v1::TrainingJobSpec spec;
  spec.mutable_workers()->set_count(4);
  spec.mutable_workers()->set_batch(4);
  spec.mutable_data()->set_sequence_length(32);
  v1::SubnetworkSpec& subnetwork = *spec.mutable_subnetwork();
  subnetwork.set_granularity(v1::GRANULARITY_BLOCK);
  subnetwork.set_masking(v1::MASKING_FORWARD);
  subnetwork.set_coverage(coverage);
  subnetwork.set_scheme(coverage < 1 ? v1::MASK_SCHEME_CYCLIC : v1::MASK_SCHEME_FULL);
  subnetwork.set_ends_always_on(true);
  subnetwork.set_seed(7);
  spec.mutable_optimizer()->set_name("adamw");
  spec.mutable_schedule()->set_steps(1000);
  v1::DroppingSpec& dropping = *spec.mutable_dropping();
  dropping.set_mode(v1::DROPPING_MODE_ENFORCE);
  dropping.set_density(0.3);
  dropping.set_warmup_fraction(0.1);
  dropping.set_residual(v1::RESIDUAL_KEEP_AUTO);
  return spec;
}

v1::Plan Planned(const v1::TrainingJobSpec& spec, int64_t limit = 0) {
  PlanContext context;
  context.memory_limit_bytes = limit;
  const auto plan = PlanJob(Shape(), spec, context);
  EXPECT_OK(plan);
  return plan.ok() ? *plan : v1::Plan();
}

v1::Plan Dense(v1::TrainingJobSpec spec) {
  spec.clear_dropping();
  return Planned(spec);
}

TEST(DroppingPlanTest, BudgetsSumToTheDensityAndKeepSmallTensorsWhole) {
  const v1::Plan plan = Planned(Spec());
  const plan::ModelShape shape = Shape();
  const auto& kept = plan.dropping().kept();
  ASSERT_EQ(kept.size(), static_cast<int>(shape.parameters.size()));
  EXPECT_EQ(std::accumulate(kept.begin(), kept.end(), int64_t{0}),
            std::llround(0.3 * static_cast<double>(plan.total_elements())));
  ASSERT_EQ(plan.dropping().parameters_size(), kept.size());
  ASSERT_EQ(plan.dropping().elements_size(), kept.size());
  for (int p = 0; p < kept.size(); ++p) {
    EXPECT_EQ(plan.dropping().parameters(p), shape.parameters[p].name);
    EXPECT_EQ(plan.dropping().elements(p), shape.parameters[p].elements());
    if (shape.parameters[p].dims.size() == 1) {
      EXPECT_EQ(kept[p], shape.parameters[p].elements());
    }
  }
  EXPECT_EQ(plan.dropping().first_step(), 100);
}

TEST(DroppingPlanTest, ARotationSendsAndKeepsTheDensityOfTheDenseBytes) {
  for (const double coverage : {1.0, 0.5}) {
    v1::TrainingJobSpec spec = Spec(coverage);
    spec.mutable_dropping()->set_rule("rotation");
    spec.mutable_dropping()->set_residual(v1::RESIDUAL_KEEP_NONE);
    const v1::Plan plan = Planned(spec), dense = Dense(spec);
    for (int w = 0; w < 4; ++w) {
      const auto& dropped = plan.workers(w);
      EXPECT_NEAR(static_cast<double>(dropped.traffic_bytes_per_step()),
                  0.3 * static_cast<double>(dense.workers(w).traffic_bytes_per_step()),
                  0.02 * static_cast<double>(dense.workers(w).traffic_bytes_per_step()));
      EXPECT_NEAR(static_cast<double>(dropped.memory().gradients()),
                  0.3 * static_cast<double>(dense.workers(w).memory().gradients()),
                  0.02 * static_cast<double>(dense.workers(w).memory().gradients()));
      EXPECT_EQ(dropped.memory().residual(), 0);
    }
  }
}

TEST(DroppingPlanTest, PicksAreCountedAsTraffic) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_dropping()->set_rule("rotation");
  const auto traffic = [&] { return static_cast<double>(Planned(spec).workers(0).traffic_bytes_per_step()); };
  const double rotation = traffic();
  const double dense = static_cast<double>(Dense(spec).workers(0).traffic_bytes_per_step());
  spec.mutable_dropping()->set_rule("cyclic_top_k");
  // A bitmap is a 32nd of the elements, and a broadcast half of an all-reduce.
  EXPECT_NEAR(traffic() - rotation, dense / 64, dense * 0.002);
  spec.mutable_dropping()->set_rule("sketch_top_k");
  EXPECT_NEAR(traffic() - rotation, dense / 16, dense * 0.002);
}

TEST(DroppingPlanTest, LocalPicksAreRefusedWhereTheirIndicesCostMoreThanDenseGradients) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_dropping()->set_rule("magnitude");
  const auto refused = PlanJob(Shape(), spec, PlanContext());  // of four workers: 1.2 times the dense bytes
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("spec.dropping.rule: magnitude sends"));
  spec.mutable_dropping()->set_density(0.2);
  const v1::Plan plan = Planned(spec);
  EXPECT_EQ(plan.dropping().rule(), "magnitude");
  // density * workers of the dense bytes, and small tensors whole.
  EXPECT_NEAR(plan.dropping().traffic_ratio(), 0.8, 0.05);
  // The ring has room for the picks of all four.
  EXPECT_NEAR(plan.dropping().gradient_memory_ratio(), 0.8, 0.05);
}

TEST(DroppingPlanTest, TheResidualIsTheMostExactThatFitsOfALongRun) {
  EXPECT_EQ(Planned(Spec()).dropping().residual(), v1::RESIDUAL_KEEP_NONE) << "1,000 steps lose by one";
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_schedule()->set_steps(2000);
  const auto peak = [&](v1::ResidualKeep residual) {
    v1::TrainingJobSpec fixed = spec;
    fixed.mutable_dropping()->set_residual(residual);
    fixed.mutable_dropping()->set_warmup_fraction(0);
    return Planned(fixed).workers(0).memory().peak();
  };
  const int64_t fp32 = peak(v1::RESIDUAL_KEEP_FP32), bf16 = peak(v1::RESIDUAL_KEEP_BF16),
                none = peak(v1::RESIDUAL_KEEP_NONE);
  EXPECT_GT(fp32, bf16);
  EXPECT_GT(bf16, none);
  const v1::Plan roomy = Planned(spec, fp32), middle = Planned(spec, fp32 - 1),
                 tight = Planned(spec, bf16 - 1);
  EXPECT_EQ(roomy.dropping().rule(), "cyclic_top_k");
  EXPECT_EQ(roomy.dropping().residual(), v1::RESIDUAL_KEEP_FP32);
  EXPECT_EQ(middle.dropping().residual(), v1::RESIDUAL_KEEP_BF16);
  EXPECT_EQ(tight.dropping().rule(), "rotation");
  EXPECT_EQ(tight.dropping().residual(), v1::RESIDUAL_KEEP_NONE);
  EXPECT_EQ(tight.fit(), "fits");
}

TEST(DroppingPlanTest, AJobWhoseDenseGradientsDoNotFitRunsWithoutADenseWarmUp) {
  const int64_t dense = Dense(Spec()).workers(0).memory().peak();
  EXPECT_EQ(Planned(Spec(), dense).dropping().first_step(), 100);
  const v1::Plan plan = Planned(Spec(), dense - 1);
  EXPECT_EQ(plan.fit(), "fits");
  EXPECT_EQ(plan.dropping().first_step(), 0);
  EXPECT_THAT(plan.dropping().reason(), HasSubstr("no dense warm-up, as dense gradients do not fit"));
}

TEST(DroppingPlanTest, ADensityThatSmallTensorsExceedIsRefused) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_dropping()->set_density(0.001);
  const absl::Status status = PlanJob(Shape(), spec, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("spec.dropping.density: density 0.001"));
  EXPECT_THAT(status.message(), HasSubstr("use density"));
}

TEST(DroppingPlanTest, LimitsOfLayersAreKeptAndOnesThatNameNothingAreRefused) {
  v1::TrainingJobSpec spec = Spec();
  const plan::ModelShape shape = Shape();
  size_t matrix = 0;
  while (shape.parameters[matrix].dims.size() < 2) ++matrix;
  v1::DensityLimit& limit = *spec.mutable_dropping()->add_layer_limits();
  limit.set_pattern(shape.parameters[matrix].name.substr(0, 3) + "*" +
                    shape.parameters[matrix].name.substr(4));
  limit.set_min(0.9);
  EXPECT_GE(static_cast<double>(Planned(spec).dropping().kept(static_cast<int>(matrix))),
            0.9 * static_cast<double>(shape.parameters[matrix].elements()));
  limit.set_pattern("nothing.*");
  const absl::Status status = PlanJob(shape, spec, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("spec.dropping.layerLimits: no parameter of the model is named 'nothing.*'"));
  // Many stars are no more work than one, whether or not they fit.
  std::string stars = "*";
  for (int i = 0; i < 40; ++i) stars += "*";
  limit.set_pattern(stars + shape.parameters[matrix].name.substr(4) + stars);
  EXPECT_OK(PlanJob(shape, spec, {}));
  limit.set_pattern(stars + "e" + stars + "e" + stars + "nothing");
  EXPECT_EQ(PlanJob(shape, spec, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DroppingPlanTest, AutomaticDroppingStaysOnWhereTheLinksAreNotMeasuredAndAShadowChangesNoFigure) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_dropping()->set_mode(v1::DROPPING_MODE_AUTO);
  const v1::Plan automatic = Planned(spec);
  EXPECT_EQ(automatic.dropping().mode(), v1::DROPPING_MODE_ENFORCE);
  EXPECT_THAT(automatic.dropping().reason(), HasSubstr("the links are not measured"));
  spec.mutable_dropping()->set_mode(v1::DROPPING_MODE_SHADOW);
  const v1::Plan shadow = Planned(spec), dense = Dense(Spec());
  EXPECT_EQ(shadow.dropping().mode(), v1::DROPPING_MODE_SHADOW);
  EXPECT_EQ(shadow.workers(0).traffic_bytes_per_step(), dense.workers(0).traffic_bytes_per_step());
  EXPECT_EQ(shadow.workers(0).memory().peak(), dense.workers(0).memory().peak());
}

TEST(DroppingPlanTest, UnlikeLinksGetUnlikeSharesThatSumToTheDensity) {
  v1::TrainingJobSpec spec = Spec();
  std::vector<plan::WorkerCapacity> capacities;
  for (const double link : {1e8, 1e8, 1e8, 2e7}) {
    capacities.push_back({.usable_bytes = 1 << 30, .relative_speed = 1, .bytes_per_second = link});
    spec.mutable_resources()->add_per_worker()->set_bandwidth_bytes_per_second(static_cast<int64_t>(link));
  }
  const auto plan = PlanJob(Shape(), spec, {}, capacities);
  ASSERT_OK(plan);
  const auto& shares = plan->dropping().worker_shares();
  ASSERT_EQ(shares.size(), 4) << plan->dropping().reason();
  EXPECT_EQ(shares[0], 1);
  EXPECT_LT(shares[3], 0.5);
  const auto sum = [](const v1::Plan& of) {
    return std::accumulate(of.dropping().kept().begin(), of.dropping().kept().end(), int64_t{0});
  };
  const double largest = static_cast<double>(sum(*plan)) / static_cast<double>(plan->total_elements());
  EXPECT_NEAR(largest * std::accumulate(shares.begin(), shares.end(), 0.0) / 4, 0.3, 0.002);
  EXPECT_THAT(plan->dropping().reason(), HasSubstr("workers contribute"));
  EXPECT_LT(plan->workers(3).traffic_bytes_per_step(), plan->workers(0).traffic_bytes_per_step());
  // Budgets that are divided anew keep the shares.
  const std::vector<LayerMeasure> measures(static_cast<size_t>(plan->dropping().kept_size()),
                                           {.root_second_moment = 1});
  const auto next = Rebudget(Shape(), spec, *plan, measures);
  ASSERT_OK(next);
  EXPECT_NEAR(static_cast<double>(sum(*next)), static_cast<double>(sum(*plan)), 2);
}

TEST(DroppingPlanTest, LimitsOfWorkersAreKeptAndOnesThatNameNobodyAreRefused) {
  v1::TrainingJobSpec spec = Spec();
  v1::DensityLimit& limit = *spec.mutable_dropping()->add_worker_limits();
  limit.set_pattern("2");
  limit.set_max(0.15);
  const v1::Plan plan = Planned(spec);
  ASSERT_EQ(plan.dropping().worker_shares_size(), 4);
  EXPECT_NEAR(plan.dropping().worker_shares(2) * 0.35, 0.15, 1e-3);  // the others have 0.35 each
  limit.set_pattern("7");
  EXPECT_THAT(std::string(PlanJob(Shape(), spec, {}).status().message()),
              HasSubstr("no worker is named '7'"));
  limit.set_pattern("*");
  EXPECT_THAT(std::string(PlanJob(Shape(), spec, {}).status().message()), HasSubstr("allow a density of"));
}

TEST(DroppingPlanTest, AutomaticDroppingGoesByTheSlowestLinkThatIsKnown) {
  v1::TrainingJobSpec spec = Spec();
  spec.mutable_dropping()->set_mode(v1::DROPPING_MODE_AUTO);
  plan::ModelShape shape = Shape();
  shape.activations.head_seconds_per_token = 1e-4;
  for (plan::BlockActivation& kind : shape.activations.kinds) kind.seconds_per_token = 1e-4;
  PlanContext context;
  context.cores_per_worker = 1;
  for (const auto& [link, mode] : {std::pair(int64_t{1} << 40, v1::DROPPING_MODE_OFF),
                                   std::pair(int64_t{1} << 20, v1::DROPPING_MODE_ENFORCE)}) {
    spec.mutable_resources()->clear_per_worker();
    for (int w = 0; w < 4; ++w)
      spec.mutable_resources()->add_per_worker()->set_bandwidth_bytes_per_second(link);
    const auto plan = PlanJob(shape, spec, context);
    ASSERT_OK(plan);
    EXPECT_EQ(plan->dropping().mode(), mode) << plan->dropping().reason();
  }
}

TEST(DivideBudgetsTest, PartsOfAParameterSumToItsBudget) {
  plan::MaskRequest request;
  request.workers = 4;
  request.coverage = 0.5;
  request.granularity = plan::Granularity::kNeuron;
  const plan::ModelShape shape = Shape();
  const auto mask = plan::MakeMaskPlan(shape, request);
  ASSERT_OK(mask);
  std::vector<int64_t> kept, sums(shape.parameters.size(), 0), elements(shape.parameters.size(), 0);
  for (const auto& parameter : shape.parameters)
    kept.push_back(std::max<int64_t>(1, parameter.elements() / 3));
  for (const bool sharded : {false, true}) {
    std::fill(sums.begin(), sums.end(), 0);
    std::fill(elements.begin(), elements.end(), 0);
    for (const plan::KeptPart& part : plan::DivideBudgets(shape, *mask, {.kept = kept}, sharded)) {
      EXPECT_GE(part.kept, 1);
      EXPECT_LE(part.kept, part.elements);
      sums[part.parameter] += part.kept;
      elements[part.parameter] += part.elements;
    }
    for (size_t p = 0; p < sums.size(); ++p) {
      EXPECT_EQ(elements[p], shape.parameters[p].elements());
      // Parts that would have none have one element.
      EXPECT_NEAR(static_cast<double>(sums[p]), static_cast<double>(kept[p]), sharded ? 3 : 0);
    }
  }
}

}  // namespace
}  // namespace tessera::wire
