// Against a real API server; see with_api_server.sh.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "scheduler/kube/api_client.h"
#include "scheduler/kube/mirror.h"
#include "scheduler/launch/kubernetes_launcher.h"
#include "scheduler/launch/pod_placement.h"
#include "tests/patience.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;
constexpr char kMaps[] = "/api/v1/namespaces/default/configmaps";
constexpr char kPods[] = "/api/v1/namespaces/default/pods";
constexpr auto kItsOwn = ApiClient::Grace::kItsOwn;

Json Map(const std::string& name, const std::string& value) {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"name", name}, {"labels", {{"test", "yes"}}}}},
          {"data", {{"value", value}}}};
}

class ApiServer : public ::testing::Test {
 protected:
  void SetUp() override {
    auto config = LoadKubeConfig();
    ASSERT_OK(config);
    config_ = *config;
    auto client = MakeApiClient(config_);
    ASSERT_OK(client);
    client_ = *std::move(client);
  }
  KubeConfig config_;
  std::unique_ptr<ApiClient> client_;
};

TEST_F(ApiServer, KeepsWhatIsCreatedAndRefusesTheSameNameAgain) {
  ASSERT_OK(client_->Create(kMaps, Map("once", "1")));
  EXPECT_EQ((*client_->Get(absl::StrCat(kMaps, "/once")))["data"]["value"], "1");
  EXPECT_TRUE(absl::IsAlreadyExists(client_->Create(kMaps, Map("once", "2")).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Create(kMaps, Map("Not A Name", "2")).status()));
  ASSERT_OK(client_->Delete(absl::StrCat(kMaps, "/once"), "", kItsOwn));
  EXPECT_TRUE(absl::IsNotFound(client_->Get(absl::StrCat(kMaps, "/once")).status()));
}

TEST_F(ApiServer, RefusesAPatchOfAnOlderVersion) {
  const auto first = client_->Create(kMaps, Map("patched", "1"));
  ASSERT_OK(first);
  const Json patch = {{"metadata", {{"resourceVersion", (*first)["metadata"]["resourceVersion"]}}},
                      {"data", {{"value", "2"}}}};
  ASSERT_OK(client_->MergePatch(absl::StrCat(kMaps, "/patched"), patch));
  EXPECT_TRUE(absl::IsAborted(client_->MergePatch(absl::StrCat(kMaps, "/patched"), patch).status()));
  EXPECT_TRUE(absl::IsAborted(client_->Delete(absl::StrCat(kMaps, "/patched"), "another-uid", kItsOwn)));
}

// A pod of rank 1 as the Job controller makes it, for a node that nobody has.
Json PodOfRankOne(const std::string& name) {
  LaunchRequest request;
  request.job_name = "placed";
  request.job_uid = "0123456789abcdef0123456789abcdef";
  request.world_size = 2;
  request.run_directory = "/state/jobs/placed";
  request.nodes = {"node-a", "node-b"};
  const KubernetesOptions options = {
      .ns = "default", .worker_image = "worker:1", .state = {"pvc:state", "/state"}, .place_workers = true};
  Json pod = RenderWorkers(request, options)["spec"]["template"];
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  pod["metadata"]["name"] = name;
  pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = "1";
  return pod;
}

TEST_F(ApiServer, ForgetsAPodOfASilentNodeWhenItIsToGoAtOnce) {
  Json pod = PodOfRankOne("stuck");
  pod["spec"].erase("schedulingGates");
  pod["spec"]["nodeName"] = "silent";
  ASSERT_OK(client_->Create(kPods, pod));
  const std::string path = absl::StrCat(kPods, "/stuck");
  ASSERT_OK(client_->Delete(path, "", kItsOwn));
  const auto waits = client_->Get(path);
  ASSERT_OK(waits);
  EXPECT_TRUE((*waits)["metadata"].contains("deletionTimestamp"));
  ASSERT_OK(client_->Delete(path, (*waits)["metadata"]["uid"], ApiClient::Grace::kNone));
  EXPECT_TRUE(absl::IsNotFound(client_->Get(path).status()));
}

TEST_F(ApiServer, TakesThePlacementOfAPodThatWaitsForIt) {
  const auto waits = client_->Create(kPods, PodOfRankOne("gated"));
  ASSERT_OK(waits);
  const auto placed = client_->MergePatch(absl::StrCat(kPods, "/gated"), PlacementOf(*waits));
  ASSERT_OK(placed);
  EXPECT_TRUE(PlacementOf(*placed).is_null());
  const Json wish =
      (*placed)["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
  EXPECT_EQ(wish[0]["preference"]["matchFields"][0]["values"], Json::array({"node-b"}));
  EXPECT_OK(client_->Delete(absl::StrCat(kPods, "/gated"), "", ApiClient::Grace::kNone));
}

TEST_F(ApiServer, AppliesTheSameObjectTwice) {
  ASSERT_OK(client_->Apply(absl::StrCat(kMaps, "/applied"), Map("applied", "1")));
  const auto again = client_->Apply(absl::StrCat(kMaps, "/applied"), Map("applied", "2"));
  ASSERT_OK(again);
  EXPECT_EQ((*again)["data"]["value"], "2");
}

TEST_F(ApiServer, ListsAllPages) {
  for (int i = 0; i < 7; ++i) ASSERT_OK(client_->Create(kMaps, Map(absl::StrCat("page-", i), "")));
  const auto small = ListAll(*client_, kMaps, 2);
  const auto large = ListAll(*client_, kMaps);
  ASSERT_OK(small);
  ASSERT_OK(large);
  EXPECT_GE(small->items.size(), 7u);
  EXPECT_EQ(small->items, large->items);
}

TEST_F(ApiServer, SaysThatAWatchIsTooOld) {
  const auto first = client_->Create(kMaps, Map("aged", "1"));
  ASSERT_OK(first);
  const std::string version = (*first)["metadata"]["resourceVersion"];
  const absl::Time deadline = absl::Now() + kPatience;
  absl::Status status;
  while (!absl::IsOutOfRange(status) && absl::Now() < deadline) {
    ASSERT_OK(client_->MergePatch(absl::StrCat(kMaps, "/aged"), {{"data", {{"value", "2"}}}}));
    status = client_->Watch(
        kMaps, version, [](const Json&) { return false; }, [&] { return absl::Now() > deadline; });
  }
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
}

TEST_F(ApiServer, RefusesAWrongTokenAndAServerThatNobodySigned) {
  KubeConfig wrong = config_;
  wrong.token = "wrong";
  EXPECT_TRUE(absl::IsUnauthenticated((*MakeApiClient(wrong))->Get(kMaps).status()));
  KubeConfig unsigned_server = config_;
  unsigned_server.ca_pem = "";
  EXPECT_THAT((*MakeApiClient(unsigned_server))->Get(kMaps).status().message(),
              ::testing::HasSubstr("certificate verify failed"));
}

TEST_F(ApiServer, AMirrorFollowsCreationChangeAndDeletion) {
  absl::Mutex mutex;
  int changes = 0;
  Mirror mirror(client_.get(), absl::StrCat(kMaps, "?labelSelector=test"), [&] {
    absl::MutexLock lock(&mutex);
    ++changes;
  });
  const auto until = [&](const std::function<bool(const Mirror::Objects&)>& wanted) {
    const absl::Time deadline = absl::Now() + kPatience;
    absl::MutexLock lock(&mutex);
    while (true) {
      const auto now = mirror.Now();
      if (now != nullptr && wanted(*now)) return true;
      const int seen = changes;
      const auto more = [&] { return changes != seen; };
      if (!mutex.AwaitWithDeadline(absl::Condition(&more), deadline)) return false;
    }
  };
  ASSERT_TRUE(until([](const auto&) { return true; }));
  ASSERT_OK(client_->Create(kMaps, Map("mirrored", "1")));
  EXPECT_TRUE(until([](const auto& all) { return all.contains("mirrored"); }));
  ASSERT_OK(client_->MergePatch(absl::StrCat(kMaps, "/mirrored"), {{"data", {{"value", "2"}}}}));
  EXPECT_TRUE(until([](const auto& all) { return (*all.at("mirrored"))["data"]["value"] == "2"; }));
  ASSERT_OK(client_->Delete(absl::StrCat(kMaps, "/mirrored"), "", kItsOwn));
  EXPECT_TRUE(until([](const auto& all) { return !all.contains("mirrored"); }));
}

TEST_F(ApiServer, TakesTheWorkersAndFindsThemAgain) {
  const KubernetesOptions options{.ns = "default",
                                  .worker_image = "localhost/worker@sha256:" + std::string(64, '0'),
                                  .state = {"pvc:state", "/var/lib/tessera"},
                                  .data = {{"hostPath:/data", "/data"}}};
  auto launcher = MakeKubernetesLauncher(client_.get(), options);
  ASSERT_OK(launcher);
  const LaunchRequest request{.job_name = "job",
                              .job_uid = "0123456789abcdef",
                              .epoch = 1,
                              .world_size = 2,
                              .scheduler = "tesserad:7700",
                              .token_file = "/var/lib/tessera/token",
                              .memory_bytes = 1 << 20};
  const auto record = (*launcher)->Launch(request);
  ASSERT_OK(record);
  EXPECT_EQ(*(*launcher)->Launch(request), *record);
  const std::string policy = absl::StrCat("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/",
                                          KubernetesJobName(request.job_uid, 1));
  EXPECT_OK(client_->Get(policy));
  EXPECT_OK((*launcher)->Stop(*record, true));
  EXPECT_OK((*launcher)->Stop(*record, true));
}

}  // namespace
}  // namespace tessera::scheduler
