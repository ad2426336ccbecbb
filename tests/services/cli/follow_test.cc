#include "services/cli/follow.h"

#include <atomic>

#include "gmock/gmock.h"
#include "tests/services/cli/fake_service.h"

namespace tessera::cli {
namespace {

using testing::HasSubstr;

class Watch : public CommandTest {
 protected:
  int CountCalls(const std::string& call) {
    const auto calls = service_.calls();
    return static_cast<int>(std::count(calls.begin(), calls.end(), call));
  }
};

TEST_F(Watch, ExitCodeTellsHowTheJobEnded) {
  const std::vector<std::pair<v1::JobState, int>> cases = {{v1::JOB_STATE_SUCCEEDED, kSucceeded},
                                                           {v1::JOB_STATE_FAILED, kFailed},
                                                           {v1::JOB_STATE_CANCELLED, kCancelled},
                                                           {v1::JOB_STATE_SUSPENDED, kSuspended}};
  for (const auto& [state, exit_code] : cases) {
    service_.Put(StoredJob(v1::JOB_STATE_RUNNING, 10));
    service_.on_watched = [this, state = state](const std::string& name) {
      service_.SetState(name, state, 100);
    };
    EXPECT_EQ(Run({"watch", "small"}), exit_code) << err();
    EXPECT_THAT(out(), HasSubstr("small  state " + v1::JobState_Name(state).substr(10)));
  }
}

TEST_F(Watch, ALostConnectionIsMadeAgain) {
  service_.Put(StoredJob(v1::JOB_STATE_RUNNING, 10));
  std::atomic<int> streams = 0;
  service_.on_watched = [&](const std::string& name) {
    if (++streams == 3) service_.SetState(name, v1::JOB_STATE_SUCCEEDED, 100);
  };
  service_.on_watch = [&] {
    return streams < 3 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection reset") : grpc::Status::OK;
  };
  EXPECT_EQ(Run({"watch", "small"}), kSucceeded);
  EXPECT_EQ(CountCalls("Watch small"), 3);
  EXPECT_THAT(err(), HasSubstr("reconnecting"));
}

TEST_F(Watch, AJobThatDoesNotExistFails) {
  EXPECT_EQ(Run({"watch", "small"}), kFailed);
  EXPECT_THAT(err(), HasSubstr("there is no such job"));
}

TEST_F(Watch, ADeletedJobFails) {
  service_.Put(StoredJob(v1::JOB_STATE_RUNNING, 10));
  service_.on_watched = [this](const std::string& name) { service_.Remove(name); };
  EXPECT_EQ(Run({"watch", "small"}), kFailed);
  EXPECT_THAT(err(), HasSubstr("was deleted"));
}

TEST_F(Watch, InterruptLeavesTheJobAlone) {
  service_.Put(StoredJob(v1::JOB_STATE_RUNNING, 10));
  service_.on_watched = [this](const std::string&) { interrupts_.Interrupt(); };
  EXPECT_EQ(Run({"watch", "small"}), kInterrupted);
  EXPECT_THAT(err(), HasSubstr("the job goes on"));
  EXPECT_EQ(CountCalls("Suspend small"), 0);
}

TEST_F(Watch, ATerminalIsRedrawnInPlace) {
  service_.Put(StoredJob(v1::JOB_STATE_RUNNING, 10));
  environment_.terminal = true;
  service_.on_watched = [this](const std::string& name) {
    service_.SetState(name, v1::JOB_STATE_SUCCEEDED, 100);
  };
  EXPECT_EQ(Run({"watch", "small"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("\033[2Ksmall  SUCCEEDED"));
  EXPECT_THAT(out(), HasSubstr("\033[J"));
}

}  // namespace
}  // namespace tessera::cli
