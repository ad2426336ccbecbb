// Random worlds: whatever is observed, the invariants of a job's life hold.
#include <gtest/gtest.h>
#include <signal.h>

#include <random>
#include <set>

#include "scheduler/job/reconcile.h"

namespace tessera::job {
namespace {

using Kind = Action::Kind;

// A small machine that performs actions, with workers that do random things.
class World {
 public:
  explicit World(uint32_t seed) : random_(seed) {
    view_.workers = 3;
    view_.planned = true;
    view_.queued_at = now_;
    view_.retry.limit = {static_cast<int>(Roll(4)), static_cast<int>(Roll(2)), 0, 0};
    view_.deadlines = {absl::ZeroDuration(), absl::Seconds(60), absl::Seconds(60), absl::Seconds(60),
                       absl::Seconds(60),    absl::Seconds(60), absl::Seconds(30)};
  }

  void Step() {
    now_ += absl::Milliseconds(Roll(8000));
    if (Roll(40) == 0) view_.cancel_requested = true;
    if (Roll(40) == 0) view_.suspend_requested = !view_.suspend_requested;
    observed_.admitted = Roll(3) == 0;
    for (auto& worker : observed_.workers) Disturb(worker);
    const JobState before = view_.state;
    const Decision decision = Reconcile(view_, observed_, now_);
    Check(before, decision);
    Apply(decision);
  }

  // Left alone, with everything cancelled, a job must come to an end.
  void Finish() {
    view_.cancel_requested = true;
    for (int i = 0; i < 200 && !IsTerminal(view_.state); ++i) {
      now_ += absl::Seconds(5);
      Apply(Reconcile(view_, observed_, now_));
    }
    EXPECT_TRUE(IsTerminal(view_.state)) << JobStateName(view_.state);
    for (const auto& worker : observed_.workers)
      EXPECT_FALSE(worker.running) << "a job outlived by its worker";
  }

 private:
  uint32_t Roll(uint32_t n) { return random_() % n; }

  void Disturb(ObservedWorker& worker) {
    if (!worker.running) return;
    switch (Roll(12)) {
      case 0:
        worker.greeted = worker.connected = true;
        break;
      case 1:
        worker.phase = static_cast<Phase>(Roll(7));
        break;
      case 2:
      case 3:
        ++worker.step;
        observed_.progress_at = now_;
        break;
      case 4:
        worker.connected = !worker.connected;
        break;
      case 5:
        if (Roll(4) == 0) {
          worker.outcome = static_cast<Outcome>(1 + Roll(6));
          worker.ended_at = now_;
        }
        break;
      case 6:
        if (Roll(6) == 0) Exit(worker, Roll(2) == 0 ? SIGKILL : 0, static_cast<int>(Roll(14)));
        break;
      case 7:
        if (Roll(3) == 0) observed_.greeted_at = observed_.met_at = observed_.first_step_at = now_;
        break;
      default:
        break;
    }
  }

  void Exit(ObservedWorker& worker, int signal, int code) {
    worker.running = worker.connected = false;
    worker.exit_known = Roll(5) != 0;
    worker.signal = signal;
    worker.exit_code = signal != 0 ? 128 + signal : code;
    worker.ended_at = std::min(worker.ended_at, now_);
  }

  bool AnyRunning() const {
    for (const auto& worker : observed_.workers) {
      if (worker.running) return true;
    }
    return false;
  }

  void Check(JobState before, const Decision& decision) {
    EXPECT_TRUE(IsLegalTransition(before, decision.state));
    if (IsTerminal(before)) {
      EXPECT_EQ(decision.state, before);
      EXPECT_TRUE(decision.actions.empty());
    }
    EXPECT_GE(decision.epoch, view_.epoch);
    EXPECT_LE(decision.epoch, view_.epoch + 1);
    if (decision.epoch > view_.epoch) EXPECT_FALSE(AnyRunning()) << "two live epochs";
    if (IsTerminal(decision.state) || decision.state == JobState::kSuspended) {
      EXPECT_FALSE(AnyRunning()) << "ended with live workers as " << JobStateName(decision.state);
    }
    for (const Action& action : decision.actions) {
      if (action.kind == Kind::kLaunch) {
        EXPECT_FALSE(observed_.launched);
        EXPECT_TRUE(HoldsCapacity(decision.state));
        EXPECT_TRUE(launched_epochs_.count(action.epoch) == 0) << "epoch launched twice";
      }
    }
    if (decision.failure.has_value()) EXPECT_FALSE(decision.failure->message.empty());
  }

  void Apply(const Decision& decision) {
    if (decision.epoch > view_.epoch) {
      observed_ = Observed{};
      view_.stopping_since = view_.terminated_at = absl::InfiniteFuture();
    }
    view_.epoch = decision.epoch;
    view_.state = decision.state;
    if (decision.failure) {
      ++view_.failures[static_cast<size_t>(decision.failure->failure_class)];
      view_.failure = decision.failure->message;
    }
    if (decision.stop_started) view_.stopping_since = now_;
    for (const Action& action : decision.actions) Perform(action);
    if (decision.state == JobState::kSuspended)
      observed_ = Observed{}, view_.stopping_since = absl::InfiniteFuture();
  }

  void Perform(const Action& action) {
    if (action.kind == Kind::kLaunch) {
      if (Roll(5) == 0) {
        observed_.launch_error = "no";
        return;
      }
      launched_epochs_.insert(action.epoch);
      observed_.launched = true;
      observed_.launched_at = now_;
      for (int rank = 0; rank < view_.workers; ++rank) {
        ObservedWorker worker;
        worker.rank = rank;
        worker.running = true;
        observed_.workers.push_back(worker);
      }
    }
    if (action.kind == Kind::kScheduleRetry) view_.retry_at = action.at;
    if (action.kind == Kind::kTerminate) view_.terminated_at = now_;
    if (action.kind == Kind::kKill) {
      for (auto& worker : observed_.workers) {
        if (worker.running) Exit(worker, SIGKILL, 0);
      }
    }
  }

  std::mt19937 random_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  JobView view_;
  Observed observed_;
  std::set<int> launched_epochs_;
};

TEST(ReconcilePropertyTest, RandomWorldsNeverBreakTheInvariants) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int i = 0; i < 120; ++i) world.Step();
    world.Finish();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera::job
