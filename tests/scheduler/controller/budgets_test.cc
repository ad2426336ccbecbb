// Gradient budgets that change while a job trains.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/scheduler/controller/controller_harness.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class BudgetsTest : public ControllerHarness {
 protected:
  static v1::TrainingJob Dropping(v1::DroppingMode mode = v1::DROPPING_MODE_ENFORCE) {
    v1::TrainingJob job = Job("a");
    v1::DroppingSpec& dropping = *job.mutable_spec()->mutable_dropping();
    dropping.set_mode(mode);
    dropping.set_density(0.3);
    dropping.set_rule("rotation");
    dropping.set_residual(v1::RESIDUAL_KEEP_NONE);
    dropping.set_warmup_fraction(0.1);
    dropping.set_refresh(1);
    return job;
  }

  void StartTraining(const v1::TrainingJob& job) {
    uid_ = Submit(job);
    sinks_ = Train("a", uid_, 1, 2, 10);  // behind the warm-up
    shape_ = StackShape(8, 64, job.spec().workers().batch(), 64);
  }

  // Worker 0 owns everything; the parameter `large` has had gradients ten times as large as the others.
  void Measure(int large) {
    for (int rank = 0; rank < 2; ++rank) {
      v1::WorkerUp up;
      v1::LayerStatistics& statistics = *up.mutable_layer_statistics();
      statistics.set_step(10);
      for (int p = 0; rank == 0 && p < shape_.parameters_size(); ++p) {
        v1::LayerStatistic& layer = *statistics.add_layers();
        int64_t elements = 1;
        for (const int64_t dim : shape_.parameters(p).dims()) elements *= dim;
        layer.set_parameter(p);
        layer.set_elements(elements);
        layer.set_root_second_moment(static_cast<double>(elements) * (p == large ? 10 : 1));
        layer.set_spike(1);
      }
      controller_->WorkerMessage(Who(uid_, 1, rank), up);
    }
  }

  void Step(int rank, int64_t step, int64_t generation, double loss, int64_t since = 1) {
    v1::WorkerUp up;
    v1::Progress& progress = *up.mutable_progress();
    progress.set_step(step);
    progress.set_loss(loss);
    progress.set_plan_generation(generation);
    progress.set_plan_since(since);
    controller_->WorkerMessage(Who(uid_, 1, rank), up);
  }

  int AMatrix() const {
    for (int p = shape_.parameters_size() - 1; p >= 0; --p) {
      if (shape_.parameters(p).dims_size() > 1) return p;
    }
    return 0;
  }
  void AwaitEvent(const std::string& reason) {
    AwaitTrue([&] {
      const std::vector<std::string> reasons = EventReasons("a");
      return std::find(reasons.begin(), reasons.end(), reason) != reasons.end();
    });
  }

  std::string uid_;
  std::vector<std::shared_ptr<ScriptedSink>> sinks_;
  v1::ModelShape shape_;
};

TEST_F(BudgetsTest, StatisticsOfAllWorkersBecomeAPlanThatEveryWorkerIsSent) {
  StartTraining(Dropping());
  const int large = AMatrix();
  Measure(large);
  const v1::Plan first = store_->Plans(Key("a"))->front();
  for (const auto& sink : sinks_) {
    const v1::Plan plan = sink->AwaitPlan(2);
    EXPECT_EQ(plan.epoch(), 1);
    EXPECT_GT(plan.dropping().kept(large), 2 * first.dropping().kept(large));
    int64_t before = 0, after = 0;
    for (const int64_t kept : first.dropping().kept()) before += kept;
    for (const int64_t kept : plan.dropping().kept()) after += kept;
    EXPECT_EQ(after, before);
    EXPECT_THAT(plan.reason(), HasSubstr("most gained: " + shape_.parameters(large).name()));
  }
  AwaitEvent("BudgetsPublished");
  Step(0, 12, 2, 3, 12);
  EXPECT_THAT(EventReasons("a"), Not(Contains("BudgetsInForce"))) << "one worker has not followed";
  Step(1, 12, 2, 3, 12);
  AwaitEvent("BudgetsInForce");
}

TEST_F(BudgetsTest, AWorkerThatWasAwayAndASchedulerThatIsNewLoseNothing) {
  StartTraining(Dropping());
  Measure(AMatrix());
  sinks_[0]->AwaitPlan(2);
  RestartController();
  const v1::Plan plan = Connect(uid_, 1, 1, /*step=*/11)->AwaitPlan(2);
  EXPECT_GT(plan.dropping().kept_size(), 0);
}

TEST_F(BudgetsTest, ARiseOfTheLossGoesBackToTheBudgetsBefore) {
  StartTraining(Dropping());
  int64_t step = 2;
  for (; step <= 30; ++step) Step(0, step, 1, 2.0 + 0.01 * static_cast<double>(step % 2));
  Measure(AMatrix());
  sinks_[0]->AwaitPlan(2);
  for (int rank = 0; rank < 2; ++rank) Step(rank, step, 2, 2.0, step);
  AwaitEvent("BudgetsInForce");
  for (const int64_t end = step + 25; step < end; ++step) Step(0, step, 2, 3.0);
  const v1::Plan back = sinks_[1]->AwaitPlan(3);
  EXPECT_EQ(back.dropping().budgets_of(), 1);
  EXPECT_THAT(back.reason(), HasSubstr("back to the budgets of plan 1: mean loss over 20 steps 2.0"));
  const v1::Plan first = store_->Plans(Key("a"))->front();
  EXPECT_TRUE(std::equal(first.dropping().kept().begin(), first.dropping().kept().end(),
                         back.dropping().kept().begin()));
  EXPECT_THAT(EventReasons("a"), Contains("BudgetsWorse"));
  Measure(AMatrix());  // what went wrong is not tried again by itself
  Measure(AMatrix());
  EXPECT_EQ(store_->Plans(Key("a"))->size(), 3u);
}

TEST_F(BudgetsTest, AShadowIsComputedAndKeptAndSentToNobody) {
  StartTraining(Dropping(v1::DROPPING_MODE_SHADOW));
  const v1::Plan first = store_->Plans(Key("a"))->front();
  EXPECT_EQ(first.dropping().mode(), v1::DROPPING_MODE_SHADOW);
  EXPECT_GT(first.dropping().kept_size(), 0);
  Measure(AMatrix());
  AwaitEvent("BudgetsShadowed");
  const v1::Plan second = store_->Plans(Key("a"))->back();
  EXPECT_EQ(second.generation(), 2);
  EXPECT_EQ(second.workers(0).traffic_bytes_per_step(), first.workers(0).traffic_bytes_per_step());
  EXPECT_THAT(EventReasons("a"), Not(Contains("BudgetsPublished")));
}

TEST_F(BudgetsTest, OnRequestTheWorkersMeasureAndLimitsOfLayersAreKept) {
  StartTraining(Dropping());
  const int layer = AMatrix();
  BudgetRequest request;
  v1::DensityLimit limit;
  limit.set_pattern(shape_.parameters(layer).name());
  limit.set_min(0.5);
  limit.set_max(0.5);
  request.layer_limits = {limit};
  const auto answer = controller_->RecomputeBudgets(Key("a"), request);
  ASSERT_OK(answer);
  EXPECT_EQ(answer->spec().dropping().layer_limits_size(), 1);
  AwaitTrue([&] { return sinks_[0]->AskedForStatistics() && sinks_[1]->AskedForStatistics(); });
  Measure(-1);
  const v1::Plan plan = sinks_[0]->AwaitPlan(2);
  int64_t elements = 1;
  for (const int64_t dim : shape_.parameters(layer).dims()) elements *= dim;
  EXPECT_EQ(plan.dropping().kept(layer), (elements + 1) / 2);
  limit.set_pattern("nothing.*");
  request.layer_limits = {limit};
  EXPECT_THAT(controller_->RecomputeBudgets(Key("a"), request).status().message(),
              HasSubstr("no parameter of the model is named 'nothing.*'"));
  EXPECT_EQ(store_->Get(Key("a"))->job.spec().dropping().layer_limits(0).min(), 0.5) << "those before stay";
  request = {};
  request.budgets_of = 1;
  ASSERT_OK(controller_->RecomputeBudgets(Key("a"), request));
  EXPECT_EQ(sinks_[0]->AwaitPlan(3).dropping().budgets_of(), 1);
  request.budgets_of = 9;
  EXPECT_TRUE(absl::IsNotFound(controller_->RecomputeBudgets(Key("a"), request).status()));
}

TEST_F(BudgetsTest, WithoutDroppingThereAreNoBudgetsToRecompute) {
  uid_ = Submit(Job("a"));
  Train("a", uid_, 1);
  const absl::Status status = controller_->RecomputeBudgets(Key("a"), {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(), HasSubstr("spec.dropping.mode"));
}

}  // namespace
}  // namespace tessera::scheduler
