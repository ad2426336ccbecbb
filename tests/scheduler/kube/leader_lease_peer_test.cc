// Leader election against a real API server; see with_api_server.sh. What waits here waits for another
// candidate or for the end of a lease of a second or two.
#include <gmock/gmock.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "scheduler/kube/leader_lease.h"
#include "tests/scheduler/kube/empty_api.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;
using Notification = absl::Notification;
constexpr char kLeases[] = "/apis/coordination.k8s.io/v1/namespaces/default/leases/";
constexpr auto kNever = [] { return false; };
constexpr absl::Duration kPatience = absl::Seconds(30);

// An API server that can be cut off from one who asks.
class CutOff : public EmptyApi {
 public:
  explicit CutOff(ApiClient* real) : real_(real) {}
  void Cut() { cut_ = true; }
  absl::StatusOr<Json> Get(const std::string& path) override { return cut_ ? Gone() : real_->Get(path); }
  absl::StatusOr<Json> Create(const std::string& path, const Json& object) override {
    return cut_ ? Gone() : real_->Create(path, object);
  }
  absl::StatusOr<Json> MergePatch(const std::string& path, const Json& patch) override {
    return cut_ ? Gone() : real_->MergePatch(path, patch);
  }

 private:
  static absl::StatusOr<Json> Gone() { return absl::UnavailableError("cut off"); }
  ApiClient* const real_;
  std::atomic<bool> cut_ = false;
};

class ApiServerLease : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto config = LoadKubeConfig();
    ASSERT_OK(config);
    auto client = MakeApiClient(*config);
    ASSERT_OK(client);
    client_ = *std::move(client);
  }
  // Names are of a test, so that repeated ones do not meet.
  LeaseOptions Options(const std::string& name, const std::string& holder) {
    return {.ns = "default",
            .name = name,
            .holder = holder,
            .duration = absl::Seconds(2),
            .deadline = absl::Seconds(1),
            .interval = absl::Milliseconds(100)};
  }
  Json SpecOf(const std::string& name) {
    const auto lease = client_->Get(absl::StrCat(kLeases, name));
    EXPECT_OK(lease);
    return lease.ok() ? (*lease)["spec"] : Json::object();
  }
  std::unique_ptr<ApiClient> client_;
};

TEST_F(ApiServerLease, IsHeldByOneOfManyCandidates) {
  std::atomic<int> leaders = 0;
  std::atomic<bool> over = false;
  std::vector<std::thread> candidates;
  Notification first;
  for (int i = 0; i < 5; ++i) {
    candidates.emplace_back([&, i] {
      LeaderLease lease(client_.get(), Options("many", absl::StrCat("candidate-", i)),
                        [] { FAIL() << "lost"; });
      if (!lease.Acquire([&] { return over.load(); })) return;
      if (++leaders == 1) first.Notify();
      absl::SleepFor(absl::Seconds(4));  // twice what a lease lasts: it was renewed
      EXPECT_EQ(leaders.load(), 1);
      over = true;
    });
  }
  for (std::thread& candidate : candidates) candidate.join();
  EXPECT_TRUE(first.HasBeenNotified());
}

TEST_F(ApiServerLease, IsTakenAtOnceWhenItWasGivenBack) {
  {
    EXPECT_TRUE(LeaderLease(client_.get(), Options("given", "a"), [] {}).Acquire(kNever));
  }
  EXPECT_FALSE(SpecOf("given").contains("holderIdentity"));
  LeaseOptions patient = Options("given", "b");
  patient.duration = absl::Hours(1);
  LeaderLease next(client_.get(), patient, [] {});
  EXPECT_TRUE(next.Acquire(kNever));
  EXPECT_EQ(SpecOf("given")["holderIdentity"], "b");
  EXPECT_EQ(SpecOf("given")["leaseTransitions"], 1);
}

TEST_F(ApiServerLease, IsLostBeforeAnotherTakesItFromOneWhoIsCutOff) {
  CutOff path(client_.get());
  Notification lost;
  absl::Time lost_at;
  LeaderLease first(&path, Options("cut", "a"), [&] {
    lost_at = absl::Now();
    lost.Notify();
  });
  ASSERT_TRUE(first.Acquire(kNever));
  path.Cut();
  LeaderLease second(client_.get(), Options("cut", "b"), [] {});
  ASSERT_TRUE(second.Acquire(kNever));
  const absl::Time taken_at = absl::Now();
  ASSERT_TRUE(lost.WaitForNotificationWithTimeout(kPatience));
  EXPECT_LT(lost_at, taken_at);
  EXPECT_EQ(second.HeldBy(), "b");
}

TEST_F(ApiServerLease, IsLostToOneWhoTookIt) {
  Notification lost;
  LeaderLease lease(client_.get(), Options("stolen", "a"), [&] { lost.Notify(); });
  ASSERT_TRUE(lease.Acquire(kNever));
  ASSERT_OK(client_->MergePatch(absl::StrCat(kLeases, "stolen"), {{"spec", {{"holderIdentity", "thief"}}}}));
  EXPECT_TRUE(lost.WaitForNotificationWithTimeout(kPatience));
}

TEST_F(ApiServerLease, SurvivesAChangeThatLeavesTheHolder) {
  LeaderLease lease(client_.get(), Options("labelled", "a"), [] { FAIL() << "lost"; });
  ASSERT_TRUE(lease.Acquire(kNever));
  const std::string before = SpecOf("labelled")["renewTime"];
  ASSERT_OK(client_->MergePatch(absl::StrCat(kLeases, "labelled"),
                                {{"metadata", {{"labels", {{"seen", "yes"}}}}}}));
  const absl::Time end = absl::Now() + kPatience;
  std::string now = before;
  for (int renewals = 0; renewals < 3 && absl::Now() < end;) {
    const std::string next = SpecOf("labelled")["renewTime"];
    if (next != now) ++renewals;
    now = next;
  }
  EXPECT_GT(now, before);
}

TEST_F(ApiServerLease, IsNotWaitedForAfterAStop) {
  LeaderLease first(client_.get(), Options("stopped", "a"), [] {});
  ASSERT_TRUE(first.Acquire(kNever));
  int asked = 0;
  LeaderLease second(client_.get(), Options("stopped", "b"), [] {});
  EXPECT_FALSE(second.Acquire([&] { return ++asked > 3; }));
  EXPECT_EQ(second.HeldBy(), "a");
}

TEST_F(ApiServerLease, OfTheSameHolderIsTakenOverWithoutWaiting) {
  LeaseOptions options = Options("restarted", "a");
  options.duration = absl::Hours(1);
  options.deadline = absl::Minutes(50);
  LeaderLease before(client_.get(), options, [] {});  // dies without a word, as far as the next one knows
  ASSERT_TRUE(before.Acquire(kNever));
  LeaderLease after(client_.get(), options, [] {});
  EXPECT_TRUE(after.Acquire(kNever));
}

}  // namespace
}  // namespace tessera::scheduler
