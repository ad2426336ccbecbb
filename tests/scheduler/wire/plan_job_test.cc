// What the planner answers to a job: a plan that fits, the nearest one that would, or a refusal by field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "scheduler/wire/plan_wire.h"
#include "tests/scheduler/wire/measured_llama.h"
#include "tests/status.h"

namespace tessera::wire {
namespace {

using ::testing::HasSubstr;

TEST(PlanJobTest, SaysWhetherItFitsAndWhatWould) {
  const plan::ModelShape shape = MeasuredLlama();
  const v1::TrainingJobSpec spec = ResolvedSpec();
  const v1::Plan unlimited = Planned(shape, spec);
  int64_t peak = 0;
  for (const auto& worker : unlimited.workers()) peak = std::max(peak, worker.memory().peak());
  EXPECT_EQ(Planned(shape, spec, {.memory_limit_bytes = peak}).fit(), "fits");
  const v1::Plan tight = Planned(shape, spec, {.memory_limit_bytes = peak - 1});
  EXPECT_THAT(tight.fit(), HasSubstr("1 bytes are missing"));
  EXPECT_GT(tight.nearest_coverage(), 0.25);
  EXPECT_LT(tight.nearest_coverage(), 0.5);
}

TEST(PlanJobTest, EveryRemedyReallyFits) {
  const plan::ModelShape shape = MeasuredLlama();
  const v1::TrainingJobSpec spec = ResolvedSpec();
  const v1::Plan unlimited = Planned(shape, spec);
  int64_t peak = 0;
  for (const auto& worker : unlimited.workers()) peak = std::max(peak, worker.memory().peak());
  const int64_t limit = peak - 8000;
  const v1::Plan tight = Planned(shape, spec, {.memory_limit_bytes = limit});
  EXPECT_EQ(tight.memory_limit_bytes(), limit);
  EXPECT_GE(tight.remedies_size(), 3);
  for (const std::string& remedy : tight.remedies()) {
    v1::TrainingJobSpec changed = spec;
    const std::string word = std::vector<std::string>(absl::StrSplit(remedy, ' '))[1];
    double value = 0;
    ASSERT_TRUE(absl::SimpleAtod(word, &value) || word == "always" || word == "fsdp") << remedy;
    if (word == "always") {
      changed.set_activation_checkpointing(v1::ACTIVATION_CHECKPOINTING_ALWAYS);
    } else if (word == "fsdp") {
      changed.set_sharding(v1::SHARDING_FSDP);
    } else if (remedy.find("coverage") != std::string::npos) {
      changed.mutable_subnetwork()->set_coverage(value);
    } else if (remedy.find("batch") != std::string::npos) {
      changed.mutable_workers()->set_batch(static_cast<int>(value));
    } else if (remedy.find("sequenceLength") != std::string::npos) {
      changed.mutable_data()->set_sequence_length(static_cast<int>(value));
    } else {
      changed.mutable_workers()->set_count(static_cast<int>(value));
      changed.mutable_subnetwork()->set_coverage(0.5 * 4 / value);  // as many holders
    }
    EXPECT_EQ(Planned(shape, changed, {.memory_limit_bytes = limit}).fit(), "fits") << remedy;
  }
}

TEST(PlanJobTest, AutomaticCoverageIsTheLargestThatFits) {
  const plan::ModelShape shape = MeasuredLlama();
  v1::TrainingJobSpec spec = ResolvedSpec();
  spec.mutable_subnetwork()->clear_coverage();
  spec.mutable_subnetwork()->set_coverage_auto(true);
  const v1::Plan whole = Planned(shape, spec);
  EXPECT_EQ(whole.inputs().coverage(), 1);
  const int64_t limit = whole.workers(0).memory().peak() * 3 / 4;
  const v1::Plan fitted = Planned(shape, spec, {.memory_limit_bytes = limit});
  EXPECT_EQ(fitted.fit(), "fits");
  EXPECT_LT(fitted.inputs().coverage(), 1);
  EXPECT_GT(fitted.inputs().coverage(), 0.25);
  EXPECT_EQ(PlanJob(shape, spec, {.memory_limit_bytes = 1000}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(PlanJobTest, ARefusalOfThePlannerPointsIntoTheSpec) {
  v1::TrainingJobSpec spec = ResolvedSpec();
  spec.mutable_subnetwork()->set_coverage(0.1);
  const absl::Status status = PlanJob(MeasuredLlama(), spec, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.subnetwork: coverage: 0.1"));
}

TEST(PlanJobTest, InputThatMakesNoSenseIsRefusedByName) {
  struct Case {
    const char* says;
    std::function<void(v1::TrainingJobSpec&)> spoil;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& c : {
           Case{"workers: 1000000", [](auto& spec) { spec.mutable_workers()->set_count(1'000'000); }},
           Case{"workers: 0", [](auto& spec) { spec.mutable_workers()->set_count(0); }},
           Case{"coverage: nan", [&](auto& spec) { spec.mutable_subnetwork()->set_coverage(nan); }},
           Case{"coverage: 0", [](auto& spec) { spec.mutable_subnetwork()->set_coverage(0); }},
           Case{"min_holders: 5", [](auto& spec) { spec.mutable_subnetwork()->set_min_holders(5); }},
           Case{"min_gap: nan", [&](auto& spec) { spec.mutable_subnetwork()->set_min_gap(nan); }},
           Case{"min_gap", [](auto& spec) { spec.mutable_subnetwork()->set_min_gap(0.999); }},
       }) {
    v1::TrainingJobSpec spec = ResolvedSpec();
    c.spoil(spec);
    const absl::Status status = PlanJob(MeasuredLlama(), spec, {.memory_limit_bytes = 1 << 20}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.says << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
  }
  EXPECT_THAT(std::string(PlanJob(plan::ModelShape(), ResolvedSpec(), {}).status().message()),
              HasSubstr("no parameters"));
  EXPECT_THAT(
      std::string(PlanJob(MeasuredLlama(), ResolvedSpec(), {.memory_limit_bytes = -1}).status().message()),
      HasSubstr("memory limit"));
  // One byte of memory is an answer, not an error: nothing fits.
  EXPECT_THAT(Planned(MeasuredLlama(), ResolvedSpec(), {.memory_limit_bytes = 1}).fit(),
              HasSubstr("missing"));
}

// One worker has little memory, and all are used to the full.
TEST(PlanJobTest, UnlikeMemoriesGetUnlikeCoverage) {
  const plan::ModelShape shape = MeasuredLlama();
  v1::TrainingJobSpec spec = ResolvedSpec();
  spec.mutable_subnetwork()->set_scheme(v1::MASK_SCHEME_AUTO);
  const v1::Plan whole = Planned(shape, spec);
  EXPECT_EQ(whole.inputs().scheme(), v1::MASK_SCHEME_CYCLIC);
  spec.mutable_subnetwork()->set_coverage_auto(true);
  spec.mutable_subnetwork()->clear_coverage();
  int64_t least = std::numeric_limits<int64_t>::max();  // of what a worker needs that holds half
  for (const auto& worker : whole.workers()) least = std::min(least, worker.memory().peak());
  const std::vector<plan::WorkerCapacity> capacities = {{.usable_bytes = 10 * least},
                                                        {.usable_bytes = least},
                                                        {.usable_bytes = 10 * least},
                                                        {.usable_bytes = least}};
  const v1::Plan plan = Planned(shape, spec, {}, capacities);
  EXPECT_EQ(plan.inputs().scheme(), v1::MASK_SCHEME_PLACED);
  EXPECT_EQ(plan.fit(), "fits");
  EXPECT_EQ(plan.workers(0).coverage(), 1);
  EXPECT_EQ(plan.workers(2).coverage(), 1);
  for (int w : {1, 3}) {
    EXPECT_GT(plan.workers(w).coverage(), 0.2);
    EXPECT_LT(plan.workers(w).coverage(), 0.6);
    EXPECT_LE(plan.workers(w).memory().peak(), capacities[w].usable_bytes * 95 / 100);
    EXPECT_EQ(plan.workers(w).memory_limit_bytes(), capacities[w].usable_bytes);
  }
  v1::Plan sent;
  ASSERT_TRUE(sent.ParseFromString(plan.SerializeAsString()));
  const auto mask = RecomputeMaskPlan(shape, sent);
  ASSERT_OK(mask);
  EXPECT_EQ(mask->Fingerprint(), plan.mask_fingerprint());
}

TEST(PlanJobTest, MoreMemoryNeverGivesLessCoverage) {
  const plan::ModelShape shape = MeasuredLlama();
  v1::TrainingJobSpec spec = ResolvedSpec();
  const int64_t full = Planned(shape, spec).workers(0).memory().peak() * 2;
  spec.mutable_subnetwork()->set_coverage_auto(true);
  spec.mutable_subnetwork()->clear_coverage();
  for (v1::MaskScheme scheme : {v1::MASK_SCHEME_AUTO, v1::MASK_SCHEME_SIZE_AWARE}) {
    spec.mutable_subnetwork()->set_scheme(scheme);
    double before = 0, before_unlike = 0;
    for (int64_t limit = full / 4; limit <= full; limit += full / 40) {
      const auto plan = PlanJob(shape, spec, {.memory_limit_bytes = limit});
      EXPECT_GE(plan.ok() ? plan->inputs().coverage() : 0, before) << limit;
      before = plan.ok() ? plan->inputs().coverage() : before;
      if (scheme != v1::MASK_SCHEME_AUTO) continue;  // size_aware does not search for room
      const std::vector<plan::WorkerCapacity> unlike = {{limit}, {full}, {full / 2}, {limit}};
      const auto placed = PlanJob(shape, spec, {}, unlike);
      EXPECT_GE(placed.ok() ? placed->inputs().coverage() : 0, before_unlike) << limit;
      before_unlike = placed.ok() ? placed->inputs().coverage() : before_unlike;
    }
    EXPECT_EQ(before, 1);
    if (scheme == v1::MASK_SCHEME_AUTO) EXPECT_GT(before_unlike, 0.6);
  }
}

TEST(PlanJobTest, TooMuchForUnlikeWorkersNamesWhatWouldFit) {
  const plan::ModelShape shape = MeasuredLlama();
  v1::TrainingJobSpec spec = ResolvedSpec();
  spec.mutable_subnetwork()->set_scheme(v1::MASK_SCHEME_AUTO);
  const int64_t half = Planned(shape, spec).workers(0).memory().peak();
  spec.mutable_subnetwork()->set_coverage(1);
  const std::vector<plan::WorkerCapacity> capacities = {{4 * half}, {4 * half}, {half}, {half}};
  const absl::Status status = PlanJob(shape, spec, {}, capacities).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes are missing"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.subnetwork.coverage: 0."));
}

}  // namespace
}  // namespace tessera::wire
