#include "scheduler/job/reconcile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <functional>

namespace tessera::job {
namespace {

using ::testing::HasSubstr;
using Kind = Action::Kind;
using S = JobState;
const absl::Time kNow = absl::FromUnixSeconds(10000);

JobView View(S state, int epoch = 1) {
  JobView view;
  view.state = state;
  view.workers = 2;
  view.epoch = epoch;
  view.planned = true;
  view.queued_at = kNow;
  view.deadlines = {absl::ZeroDuration(), absl::Seconds(120), absl::Seconds(120), absl::Seconds(600),
                    absl::Seconds(300),   absl::Seconds(600), absl::Seconds(60)};
  return view;
}

// A healthy group in the middle of training.
Observed Training(int64_t step = 5) {
  Observed observed;
  observed.launched = true;
  observed.launched_at = observed.greeted_at = observed.met_at = observed.first_step_at =
      observed.progress_at = kNow;
  for (int rank = 0; rank < 2; ++rank) {
    ObservedWorker worker;
    worker.rank = rank;
    worker.running = worker.connected = worker.greeted = true;
    worker.phase = Phase::kTraining;
    worker.step = step;
    observed.workers.push_back(worker);
  }
  return observed;
}

Observed Ended(Outcome outcome) {
  Observed observed = Training();
  for (auto& worker : observed.workers) {
    worker.running = false;
    worker.exit_known = true;
    worker.outcome = outcome;
    worker.ended_at = kNow;
  }
  return observed;
}

bool Has(const Decision& decision, Kind kind) {
  return std::any_of(decision.actions.begin(), decision.actions.end(),
                     [&](const Action& a) { return a.kind == kind; });
}

TEST(ReconcileTest, AQueuedJobWaitsUntilAdmittedAndSaysWhy) {
  Observed observed;
  observed.admission_message = "needs 5 MB";
  Decision decision = Reconcile(View(S::kQueued, 0), observed, kNow);
  EXPECT_EQ(decision.state, S::kQueued);
  EXPECT_EQ(decision.message, "needs 5 MB");
  observed.admitted = true;
  EXPECT_EQ(Reconcile(View(S::kQueued, 0), observed, kNow).state, S::kPlanned);
}

TEST(ReconcileTest, TheEpochIsStoredBeforeAnythingIsLaunched) {
  Decision planned = Reconcile(View(S::kPlanned, 0), Observed{}, kNow);
  EXPECT_EQ(planned.state, S::kStarting);
  EXPECT_EQ(planned.epoch, 1);
  EXPECT_FALSE(Has(planned, Kind::kLaunch));
  Decision starting = Reconcile(View(S::kStarting, 1), Observed{}, kNow);
  ASSERT_TRUE(Has(starting, Kind::kLaunch));
  EXPECT_EQ(starting.epoch, 1);
}

TEST(ReconcileTest, RunsFromTheFirstStepAndWarmsUpBeforeIfAsked) {
  EXPECT_EQ(Reconcile(View(S::kStarting), Training(1), kNow).state, S::kRunning);
  JobView view = View(S::kStarting);
  view.warmup_steps = 10;
  EXPECT_EQ(Reconcile(view, Training(1), kNow).state, S::kWarmup);
  view.state = S::kWarmup;
  EXPECT_EQ(Reconcile(view, Training(9), kNow).state, S::kWarmup);
  EXPECT_EQ(Reconcile(view, Training(10), kNow).state, S::kRunning);
}

TEST(ReconcileTest, SucceedsWhenAllCompletedAndNoProcessIsLeft) {
  Decision decision = Reconcile(View(S::kRunning), Ended(Outcome::kCompleted), kNow);
  EXPECT_EQ(decision.state, S::kSucceeded);
  EXPECT_TRUE(Has(decision, Kind::kRelease));

  Observed lingering = Ended(Outcome::kCompleted);
  lingering.workers[1].running = true;
  EXPECT_EQ(Reconcile(View(S::kRunning), lingering, kNow).state, S::kRunning);
  EXPECT_TRUE(Has(Reconcile(View(S::kRunning), lingering, kNow + kExitGrace), Kind::kKill));
}

TEST(ReconcileTest, AKilledWorkerEndsTheEpochAndSchedulesTheNext) {
  Observed observed = Training();
  observed.workers[1].running = false;
  observed.workers[1].exit_known = true;
  observed.workers[1].signal = SIGKILL;
  observed.workers[1].ended_at = kNow;
  Decision decision = Reconcile(View(S::kRunning), observed, kNow);
  EXPECT_EQ(decision.state, S::kDegraded);
  EXPECT_EQ(decision.epoch, 1);
  EXPECT_TRUE(Has(decision, Kind::kKill));
  EXPECT_TRUE(Has(decision, Kind::kScheduleRetry));
  EXPECT_THAT(decision.message, HasSubstr("worker 1 was killed by signal 9 (SIGKILL)"));

  JobView degraded = View(S::kDegraded);
  degraded.retry_at = kNow + absl::Seconds(1);
  observed.workers[0].running = true;
  Decision waits = Reconcile(degraded, observed, kNow + absl::Seconds(5));
  EXPECT_EQ(waits.state, S::kDegraded) << "the old epoch still has a live process";
  observed.workers[0].running = false;
  EXPECT_EQ(Reconcile(degraded, observed, kNow).state, S::kDegraded) << "back-off";
  Decision restart = Reconcile(degraded, observed, kNow + absl::Seconds(1));
  EXPECT_EQ(restart.state, S::kStarting);
  EXPECT_EQ(restart.epoch, 2);
}

TEST(ReconcileTest, AJobWithoutWorkersWhosePlanNeedsALostNodeGivesItsCapacityBack) {
  Observed observed;
  observed.lost_node = "node-b";
  for (S state : {S::kPlanned, S::kDegraded}) {
    const Decision decision = Reconcile(View(state), observed, kNow);
    EXPECT_EQ(decision.state, S::kQueued);
    EXPECT_TRUE(Has(decision, Kind::kRelease));
    EXPECT_EQ(decision.reason, "NodeLost");
    EXPECT_THAT(decision.message, HasSubstr("node-b"));
  }
  JobView last = View(S::kDegraded);
  last.retry_at = absl::InfiniteFuture();
  EXPECT_EQ(Reconcile(last, observed, kNow).state, S::kFailed) << "its retries are used up";
  Observed training = Training();
  training.lost_node = "node-b";
  EXPECT_EQ(Reconcile(View(S::kRunning), training, kNow).state, S::kRunning) << "its workers still work";
}

TEST(ReconcileTest, FailsAtTheRetryLimitNamingRankAndCause) {
  JobView view = View(S::kRunning, 4);
  view.failures = {3, 0, 0, 0};
  Observed observed = Ended(Outcome::kPeerLost);
  observed.workers[0].outcome = Outcome::kNone;
  observed.workers[0].signal = SIGKILL;
  Decision decision = Reconcile(view, observed, kNow);
  EXPECT_EQ(decision.state, S::kFailed);
  EXPECT_THAT(decision.message, HasSubstr("worker 0 was killed by signal 9 (SIGKILL)"));
  EXPECT_THAT(decision.message, HasSubstr("retried 3 times"));
}

TEST(ReconcileTest, CancelledAtOnceWhereNothingRuns) {
  for (S state : {S::kQueued, S::kPlanned, S::kSuspended, S::kStarting, S::kDegraded}) {
    JobView view = View(state);
    view.cancel_requested = true;
    EXPECT_EQ(Reconcile(view, Observed{}, kNow).state, S::kCancelled) << JobStateName(state);
  }
}

TEST(ReconcileTest, CancellingAsksThenTerminatesThenKills) {
  JobView view = View(S::kRunning);
  view.cancel_requested = true;
  Decision first = Reconcile(view, Training(), kNow);
  EXPECT_TRUE(first.stop_started);
  EXPECT_TRUE(Has(first, Kind::kAskStop));
  EXPECT_FALSE(Has(first, Kind::kTerminate));
  view.stopping_since = kNow;
  EXPECT_TRUE(Reconcile(view, Training(), kNow + absl::Seconds(59)).actions.empty());
  EXPECT_TRUE(Has(Reconcile(view, Training(), kNow + absl::Seconds(60)), Kind::kTerminate));
  view.terminated_at = kNow + absl::Seconds(60);
  EXPECT_TRUE(Reconcile(view, Training(), kNow + absl::Seconds(61)).actions.empty()) << "told once";
  EXPECT_TRUE(Has(Reconcile(view, Training(), kNow + absl::Seconds(60) + kTerminateGrace), Kind::kKill));
  EXPECT_EQ(Reconcile(view, Ended(Outcome::kStopped), kNow).state, S::kCancelled);
}

TEST(ReconcileTest, AWorkerThatWritesItsLastCheckpointIsNotKilledAtTheDrainDeadline) {
  JobView view = View(S::kRunning);
  view.cancel_requested = true;
  view.stopping_since = kNow;
  Observed observed = Training();
  observed.workers[1].phase = Phase::kCheckpointing;
  EXPECT_TRUE(Reconcile(view, observed, kNow + absl::Seconds(599)).actions.empty());
  EXPECT_TRUE(Has(Reconcile(view, observed, kNow + absl::Seconds(600)), Kind::kTerminate));
  observed.workers[1].phase = Phase::kTraining;
  EXPECT_TRUE(Has(Reconcile(view, observed, kNow + absl::Seconds(300)), Kind::kTerminate))
      << "never killed before it was told";
}

TEST(ReconcileTest, CancellingDoesNotWaitForWorkersThatHaveNothingToSave) {
  JobView view = View(S::kStarting);
  view.cancel_requested = true;
  Observed observed = Training(0);
  for (auto& worker : observed.workers) worker.phase = Phase::kRendezvous;
  EXPECT_TRUE(Has(Reconcile(view, observed, kNow), Kind::kTerminate));
}

TEST(ReconcileTest, SuspendsAndResumesWithANewEpoch) {
  JobView view = View(S::kRunning);
  view.suspend_requested = true;
  view.stopping_since = kNow;
  EXPECT_EQ(Reconcile(view, Ended(Outcome::kStopped), kNow).state, S::kSuspended);
  JobView suspended = View(S::kSuspended);
  suspended.suspend_requested = true;
  EXPECT_EQ(Reconcile(suspended, Observed{}, kNow).state, S::kSuspended);
  suspended.suspend_requested = false;
  EXPECT_EQ(Reconcile(suspended, Observed{}, kNow).state, S::kQueued);
  EXPECT_EQ(Reconcile(View(S::kPlanned, 1), Observed{}, kNow).epoch, 2);
}

TEST(ReconcileTest, CompletionWinsOverALateCancel) {
  JobView view = View(S::kRunning);
  view.cancel_requested = true;
  EXPECT_EQ(Reconcile(view, Ended(Outcome::kCompleted), kNow).state, S::kSucceeded);
}

struct DeadlineCase {
  const char* reason;
  absl::Duration limit;
  std::function<void(Observed&)> arrange;
};

TEST(ReconcileTest, EveryPhaseHasItsDeadline) {
  const auto never = absl::InfiniteFuture();
  const DeadlineCase cases[] = {
      {"StartDeadlineExceeded", absl::Seconds(120),
       [&](Observed& o) {
         o.greeted_at = o.met_at = o.first_step_at = o.progress_at = never;
         o.workers[1].greeted = false;
       }},
      {"RendezvousDeadlineExceeded", absl::Seconds(120),
       [&](Observed& o) {
         o.met_at = o.first_step_at = o.progress_at = never;
         for (auto& w : o.workers) w.step = 0, w.phase = Phase::kRendezvous;
       }},
      {"FirstStepDeadlineExceeded", absl::Seconds(600),
       [&](Observed& o) {
         o.first_step_at = o.progress_at = never;
         for (auto& w : o.workers) w.step = 0;
       }},
      {"StepDeadlineExceeded", absl::Seconds(300), [&](Observed&) {}},
      {"CheckpointDeadlineExceeded", absl::Seconds(600),
       [&](Observed& o) { o.workers[0].phase = Phase::kCheckpointing; }},
  };
  for (const DeadlineCase& c : cases) {
    Observed observed = Training();
    c.arrange(observed);
    EXPECT_FALSE(Reconcile(View(S::kRunning), observed, kNow + c.limit).failure.has_value()) << c.reason;
    Decision decision = Reconcile(View(S::kRunning), observed, kNow + c.limit + absl::Milliseconds(1));
    ASSERT_TRUE(decision.failure.has_value()) << c.reason;
    EXPECT_EQ(decision.failure->reason, c.reason);
    EXPECT_TRUE(Has(decision, Kind::kKill)) << c.reason;
  }
}

// All wait for the one that is stopped, so all are late; it alone is to blame.
TEST(ReconcileTest, AStoppedWorkerIsNamedForADeadlineThatAllMissed) {
  Observed observed = Training();
  observed.workers[1].halted = true;
  const Decision decision = Reconcile(View(S::kRunning), observed, kNow + absl::Hours(1));
  ASSERT_TRUE(decision.failure.has_value());
  EXPECT_EQ(decision.failure->rank, 1);
  EXPECT_EQ(decision.failure->message,
            "worker 1 is stopped by a signal (SIGSTOP or a debugger) and made no step within 5m");
}

TEST(ReconcileTest, TheWorkerForWhichTheOthersWaitIsNamed) {
  Observed observed = Training();
  observed.workers[0].standstill = "all-reduce in group {0,1}";
  const std::string complaint =
      "worker 1 made no step within 5m; worker 0 waits in all-reduce in group {0,1}";
  for (const auto& said : {std::optional<std::string>(), std::optional<std::string>("")}) {
    observed.workers[1].standstill = said;  // it says nothing, or that it computes
    const Decision decision = Reconcile(View(S::kRunning), observed, kNow + absl::Hours(1));
    ASSERT_TRUE(decision.failure.has_value());
    EXPECT_EQ(decision.failure->rank, 1);
    EXPECT_EQ(decision.failure->message, complaint);
  }
  observed.workers[1].standstill = "broadcast in group {0,1}";  // all wait: nobody alone is to blame
  const Decision decision = Reconcile(View(S::kRunning), observed, kNow + absl::Hours(1));
  EXPECT_EQ(decision.failure->rank, -1);
  EXPECT_EQ(
      decision.failure->message,
      "workers 0, 1 made no step within 5m; worker 0 waits in all-reduce in group {0,1}, worker 1 waits "
      "in broadcast in group {0,1}");
}

TEST(ReconcileTest, QueueDeadlineFailsTheJob) {
  JobView view = View(S::kQueued, 0);
  view.deadlines.queue = absl::Seconds(10);
  EXPECT_EQ(Reconcile(view, Observed{}, kNow + absl::Seconds(10)).state, S::kQueued);
  EXPECT_EQ(Reconcile(view, Observed{}, kNow + absl::Seconds(11)).state, S::kFailed);
}

TEST(ReconcileTest, ALaunchThatCanNeverWorkFailsAtOnce) {
  Observed observed;
  observed.launch_error = "no program /x/tessera-worker";
  EXPECT_EQ(Reconcile(View(S::kStarting), observed, kNow).state, S::kDegraded);
  observed.launch_error_final = true;
  Decision decision = Reconcile(View(S::kStarting), observed, kNow);
  EXPECT_EQ(decision.state, S::kFailed);
  EXPECT_EQ(decision.message, "no program /x/tessera-worker");
}

}  // namespace
}  // namespace tessera::job
