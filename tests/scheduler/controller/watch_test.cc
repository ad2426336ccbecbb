#include <gmock/gmock.h>

#include <deque>

#include "tests/scheduler/controller/controller_harness.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

class Watcher {
 public:
  Controller::WatchCallback Callback() {
    return [this](const SharedUpdate& update) {
      absl::MutexLock lock(&mutex_);
      updates_.push_back(update->message());
      return !stop_;
    };
  }
  v1::WatchTrainingJobResponse Await(
      const std::function<bool(const v1::WatchTrainingJobResponse&)>& predicate) {
    absl::MutexLock lock(&mutex_);
    const v1::WatchTrainingJobResponse* found = nullptr;
    const auto there = [&] {
      for (const auto& update : updates_) {
        if (predicate(update)) found = &update;
      }
      return found != nullptr;
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience));
    return found == nullptr ? v1::WatchTrainingJobResponse() : *found;
  }
  size_t size() {
    absl::MutexLock lock(&mutex_);
    return updates_.size();
  }
  std::vector<v1::JobState> States() {
    absl::MutexLock lock(&mutex_);
    std::vector<v1::JobState> states;
    for (const auto& update : updates_) {
      const auto state = update.training_job().status().state();
      if (states.empty() || states.back() != state) states.push_back(state);
    }
    return states;
  }
  void StopAfterNext() {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }

 private:
  absl::Mutex mutex_;
  std::deque<v1::WatchTrainingJobResponse> updates_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

auto InState(v1::JobState state) {
  return
      [state](const v1::WatchTrainingJobResponse& u) { return u.training_job().status().state() == state; };
}

class WatchTest : public ControllerHarness {};

TEST_F(WatchTest, TheCurrentStateComesFirstAndEveryChangeAfterIt) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  Watcher watcher;
  ASSERT_OK(controller_->Watch(Key("a"), 0, watcher.Callback()));
  watcher.Await(InState(v1::JOB_STATE_RUNNING));
  Report(uid, 1, 0, 33);
  watcher.Await([](const auto& u) { return u.training_job().status().step() == 33; });
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED);
  watcher.Await(InState(v1::JOB_STATE_SUCCEEDED));
  EXPECT_THAT(watcher.States(), ::testing::ElementsAre(v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED));
}

TEST_F(WatchTest, AWatchFromTheNewestRevisionGetsNothingOld) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->set_suspend(true);
  Submit(job);
  AwaitState("a", v1::JOB_STATE_SUSPENDED);
  Watcher first;
  ASSERT_OK(controller_->Watch(Key("a"), 0, first.Callback()));
  const int64_t revision = first.Await(InState(v1::JOB_STATE_SUSPENDED)).revision();
  Watcher resumed;
  ASSERT_OK(controller_->Watch(Key("a"), revision, resumed.Callback()));
  Watcher behind;
  ASSERT_OK(controller_->Watch(Key("a"), revision - 1, behind.Callback()));
  behind.Await(InState(v1::JOB_STATE_SUSPENDED));
  EXPECT_EQ(resumed.size(), 0u) << "it was registered before the one that has its answer";
}

TEST_F(WatchTest, ARevisionThatWasNeverReachedIsRefusedInsteadOfWaitedFor) {
  Submit(Job("a"));
  AwaitState("a", v1::JOB_STATE_STARTING);
  Watcher watcher;
  EXPECT_EQ(controller_->Watch(Key("a"), 1'000'000, watcher.Callback()).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(WatchTest, EndedJobsCanBeWatchedAndDeletionIsTold) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
  Watcher watcher;
  ASSERT_OK(controller_->Watch(Key("a"), 0, watcher.Callback()));
  watcher.Await(InState(v1::JOB_STATE_SUCCEEDED));
  AwaitTrue([&] { return controller_->Delete(Key("a"), "").ok(); });
  watcher.Await([](const auto& u) { return u.deleted(); });
  EXPECT_TRUE(absl::IsNotFound(controller_->Watch(Key("a"), 0, watcher.Callback()).status()));
}

TEST_F(WatchTest, NothingComesAfterUnwatchOrAFalseAnswer) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  Watcher unwatched, refusing, witness;
  const auto watch = controller_->Watch(Key("a"), 0, unwatched.Callback());
  ASSERT_OK(watch);
  unwatched.Await(InState(v1::JOB_STATE_RUNNING));
  controller_->Unwatch(*watch);
  const size_t seen = unwatched.size();
  refusing.StopAfterNext();
  ASSERT_OK(controller_->Watch(Key("a"), 0, refusing.Callback()));
  ASSERT_OK(controller_->Watch(Key("a"), 0, witness.Callback()));
  refusing.Await(InState(v1::JOB_STATE_RUNNING));
  Report(uid, 1, 0, 50);
  witness.Await([](const auto& u) { return u.training_job().status().step() == 50; });
  EXPECT_EQ(unwatched.size(), seen);
  EXPECT_EQ(refusing.size(), 1u);
}

}  // namespace
}  // namespace tessera::scheduler
