#include "worker/control/standstill_watch.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/patience.h"

namespace tessera::worker {
namespace {

// Keeps what is sent.
class FakeClient final : public ControlClient {
 public:
  absl::StatusOr<v1::Assignment> WaitForAssignment(absl::Duration) override { return v1::Assignment(); }
  absl::Status Finish(const v1::Finished&) override { return absl::OkStatus(); }
  void Send(const v1::WorkerUp& message) override {
    absl::MutexLock lock(&mutex_);
    said_.push_back(message.standstill().waiting_in());
  }
  std::vector<std::string> AwaitSaid(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] { return said_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience);
    return said_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> said_;
};

TEST(StandstillWatchTest, SaysWhereTheRankWaitsEachTimeThatChangesAndAgainAfterProgress) {
  FakeClient client;
  absl::Mutex mutex;
  std::string waiting = "all-reduce in group {0,1}";
  const auto set = [&](const std::string& value) {
    absl::MutexLock lock(&mutex);
    waiting = value;
  };
  auto watch = StandstillWatch::Start(
      &client,
      [&] {
        absl::MutexLock lock(&mutex);
        return waiting;
      },
      absl::Milliseconds(20));
  EXPECT_EQ(client.AwaitSaid(1), (std::vector<std::string>{"all-reduce in group {0,1}"}));
  set("");
  EXPECT_EQ(client.AwaitSaid(2).back(), "");
  watch->OnStep(StepReport());  // what was said is void; it is said anew
  EXPECT_EQ(client.AwaitSaid(3), (std::vector<std::string>{"all-reduce in group {0,1}", "", ""}));
}

}  // namespace
}  // namespace tessera::worker
