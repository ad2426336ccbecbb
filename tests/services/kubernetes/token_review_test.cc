#include "services/kubernetes/token_review.h"

#include <gmock/gmock.h>

#include "services/api/route.h"
#include "tests/scheduler/kube/empty_api.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Knows the tokens alice's and bob's; alice may get and list, bob nothing.
class FakeApiServer final : public scheduler::EmptyApi {
 public:
  absl::StatusOr<Json> Create(const std::string& path, const Json& object) override {
    ++asked;
    if (away) return absl::UnavailableError("connection refused");
    last = object["spec"];
    if (path == "/apis/authentication.k8s.io/v1/tokenreviews") {
      const std::string token = object["spec"]["token"];
      if (token == "expired") return Json{{"status", {{"authenticated", false}}}};
      const Json audiences = token == "other-audience" ? Json::array() : object["spec"]["audiences"];
      if (token.starts_with("pod.")) {
        const Json extra = {{"authentication.kubernetes.io/pod-name", Json::array({token.substr(4)})}};
        return Json{{"status",
                     {{"authenticated", true},
                      {"audiences", audiences},
                      {"user", {{"username", "system:serviceaccount:train:worker"}, {"extra", extra}}}}}};
      }
      return Json{{"status",
                   {{"authenticated", true},
                    {"audiences", audiences},
                    {"user", {{"username", token}, {"uid", "7"}, {"groups", {"team"}}}}}}};
    }
    const Json& spec = object["spec"];
    const std::string verb = spec["resourceAttributes"]["verb"];
    return Json{{"status", {{"allowed", spec["user"] == "alice" && (verb == "get" || verb == "list")}}}};
  }

  bool away = false;
  int asked = 0;
  Json last;
};

class TokenReviewTest : public ::testing::Test {
 protected:
  absl::Status Check(const std::string& token, const std::string& rpc) {
    return reviewer_.Check(token, rpc).status();
  }

  FakeApiServer server_;
  absl::Time now_ = absl::UnixEpoch();
  TokenReviewer reviewer_{&server_, "train", "tessera", [this] { return now_; }};
};

TEST_F(TokenReviewTest, WhoMayListMayNotCreate) {
  EXPECT_OK(Check("alice", "JobService.ListTrainingJobs"));
  const absl::Status refused = Check("alice", "JobService.CreateTrainingJob");
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_EQ(refused.message(), "alice may not create trainingjobs.tessera.dev in namespace train");
  EXPECT_EQ(server_.last["groups"], Json::array({"team"}));
  EXPECT_EQ(server_.last["resourceAttributes"]["namespace"], "train");
}

TEST_F(TokenReviewTest, ATokenForAnotherAudienceOrOfNobodyIsRefused) {
  EXPECT_TRUE(absl::IsUnauthenticated(Check("other-audience", "JobService.ListTrainingJobs")));
  const absl::Status expired = Check("expired", "JobService.ListTrainingJobs");
  EXPECT_TRUE(absl::IsUnauthenticated(expired));
  EXPECT_THAT(expired.message(), HasSubstr("kubectl create token ACCOUNT --audience tessera"));
}

TEST_F(TokenReviewTest, NobodyIsAskedAboutWhatCannotBeAToken) {
  for (const std::string& token : {std::string("a\xff"), std::string("a\"b"), std::string(20000, 'a')}) {
    EXPECT_TRUE(absl::IsUnauthenticated(Check(token, "JobService.ListTrainingJobs")));
  }
  EXPECT_EQ(server_.asked, 0);
}

TEST_F(TokenReviewTest, AnAnswerIsKeptForAMinuteAndARefusalForTenSeconds) {
  for (int i = 0; i < 5; ++i) EXPECT_OK(Check("alice", "JobService.GetTrainingJob"));
  EXPECT_EQ(server_.asked, 2);
  EXPECT_FALSE(Check("alice", "JobService.DeleteTrainingJob").ok());
  EXPECT_EQ(server_.asked, 3) << "the user is known";
  now_ += absl::Seconds(11);
  EXPECT_FALSE(Check("alice", "JobService.DeleteTrainingJob").ok());
  EXPECT_EQ(server_.asked, 4);
  now_ += absl::Minutes(1);
  EXPECT_OK(Check("alice", "JobService.GetTrainingJob"));
  EXPECT_EQ(server_.asked, 6);
}

TEST_F(TokenReviewTest, ASilentServerRefusesNobodyForLong) {
  server_.away = true;
  EXPECT_TRUE(absl::IsUnavailable(Check("alice", "JobService.GetTrainingJob")));
  server_.away = false;
  EXPECT_OK(Check("alice", "JobService.GetTrainingJob"));
}

TEST_F(TokenReviewTest, AWorkerIsKnownByTheNameOfThePodThatItsTokenIsBoundTo) {
  const auto refused = [this](const std::string& token, int epoch, int rank, const char* account = "worker") {
    v1::WorkerIdentity worker;
    worker.set_job_uid("0123456789abcdef0123456789abcdef");
    worker.set_epoch(epoch);
    worker.set_rank(rank);
    return reviewer_.CheckWorker(token, account, worker);
  };
  const std::string token = "pod.tessera-0123456789abcdef-2-1-x7k2p";
  EXPECT_OK(refused(token, 2, 1));
  EXPECT_OK(refused(token, 2, -1)) << "speaks for its group";
  EXPECT_EQ(server_.asked, 1);
  EXPECT_THAT(refused(token, 2, 0).message(), HasSubstr("does not run rank 0 of epoch 2"));
  EXPECT_TRUE(absl::IsPermissionDenied(refused(token, 1, 1)));
  EXPECT_TRUE(absl::IsPermissionDenied(refused(token, 2, 1, "another")));
  EXPECT_TRUE(absl::IsPermissionDenied(refused("pod.tessera-0123456789abcdef-2-1-x7k2p-more", 2, 1)));
  EXPECT_TRUE(absl::IsPermissionDenied(refused("pod.tessera-0123456789abcdee-2-1-x7k2p", 2, 1)));
  EXPECT_TRUE(absl::IsPermissionDenied(refused("alice", 2, 1))) << "bound to no pod";
  EXPECT_TRUE(absl::IsUnauthenticated(refused("expired", 2, 1)));
  EXPECT_TRUE(absl::IsUnauthenticated(refused("", 2, 1)));
}

TEST(AccessForTest, EveryRouteNeedsWhatItDoes) {
  std::map<std::string, std::vector<std::string>> by_verb;
  for (const Route& route : Routes()) {
    const NeededAccess access = AccessFor(route.rpc);
    EXPECT_EQ(access.resource,
              route.rpc == std::string("NodeService.ReportNode") ? "nodereports" : "trainingjobs");
    const bool reads =
        route.method == std::string("GET") || route.rpc == std::string("JobService.ExplainTrainingJob");
    const bool asks_to_read = access.verb == "get" || access.verb == "list" || access.verb == "watch";
    EXPECT_EQ(reads, asks_to_read) << route.rpc << " needs " << access.verb;
    by_verb[access.verb].push_back(route.rpc);
  }
  EXPECT_THAT(by_verb["create"], ElementsAre("JobService.CreateTrainingJob", "NodeService.ReportNode"));
  EXPECT_THAT(by_verb["delete"], ElementsAre("JobService.DeleteTrainingJob"));
  for (const PlainRoute& route : PlainRoutes()) EXPECT_EQ(AccessFor(route.name).verb, "list");
}

}  // namespace
}  // namespace tessera::services
