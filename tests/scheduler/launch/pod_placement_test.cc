#include "scheduler/launch/pod_placement.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/synchronization/notification.h"
#include "scheduler/launch/kubernetes_objects.h"
#include "scheduler/launch/pod_placer.h"
#include "tests/scheduler/kube/empty_api.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;

constexpr int64_t kGiB = int64_t{1} << 30;

// The larger worker needs 4 GiB, the smaller node has `smallest`.
LaunchRequest OnTwoNodes(int64_t smallest) {
  LaunchRequest request;
  request.job_name = "llama";
  request.job_uid = "0123456789abcdef0123456789abcdef";
  request.world_size = 2;
  request.memory_bytes = 4 * kGiB;
  request.least_memory_bytes = std::min(smallest, request.memory_bytes);
  request.least_limit_bytes = smallest;
  request.nodes = {"large", "small"};
  return request;
}

KubernetesOptions Placing() {
  return {.ns = "train", .worker_image = "worker:1", .state = {"pvc:state", "/state"}, .place_workers = true};
}

// The pod that the Job controller makes for `rank`.
Json PodOf(const Json& job, int rank) {
  Json pod = job["spec"]["template"];
  pod["metadata"]["uid"] = "uid-" + std::to_string(rank);
  pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = std::to_string(rank);
  return pod;
}

Json Affinity(const Json& patch) { return patch["spec"]["affinity"]["nodeAffinity"]; }

TEST(PodPlacement, EachRankWishesForItsNodeWhereItFitsAnywhere) {
  const Json job = RenderWorkers(OnTwoNodes(5 * kGiB), Placing());
  for (int rank : {0, 1}) {
    const Json patch = PlacementOf(PodOf(job, rank));
    EXPECT_EQ(patch["spec"]["schedulingGates"], Json::array());
    const Json wish = Affinity(patch)["preferredDuringSchedulingIgnoredDuringExecution"][0];
    EXPECT_EQ(wish["preference"]["matchFields"][0]["values"], Json::array({rank == 0 ? "large" : "small"}));
    EXPECT_FALSE(Affinity(patch).contains("requiredDuringSchedulingIgnoredDuringExecution"));
  }
}

TEST(PodPlacement, WhereOneNodeIsTooSmallForAllRanksMustRunOnTheirNodesAndAskForWhatTheSmallestHolds) {
  const Json job = RenderWorkers(OnTwoNodes(1 * kGiB), Placing());
  const Json resources = job["spec"]["template"]["spec"]["containers"][0]["resources"];
  EXPECT_EQ(resources["requests"]["memory"], std::to_string(kGiB + kGiB / 2));
  EXPECT_EQ(resources["limits"]["memory"], std::to_string(4 * kGiB + kGiB / 2));
  const Json must = Affinity(PlacementOf(PodOf(job, 1)))["requiredDuringSchedulingIgnoredDuringExecution"];
  EXPECT_EQ(must["nodeSelectorTerms"][0]["matchFields"][0]["values"], Json::array({"small"}));
}

TEST(PodPlacement, LeavesOtherGatesClosed) {
  Json pod = PodOf(RenderWorkers(OnTwoNodes(kGiB), Placing()), 0);
  pod["spec"]["schedulingGates"].push_back({{"name", "example.com/quota"}});
  EXPECT_EQ(PlacementOf(pod)["spec"]["schedulingGates"], Json::array({{{"name", "example.com/quota"}}}));
}

TEST(PodPlacement, ConcernsPodsAtItsGateAlone) {
  KubernetesOptions anywhere = Placing();
  anywhere.place_workers = false;
  EXPECT_TRUE(PlacementOf(PodOf(RenderWorkers(OnTwoNodes(kGiB), anywhere), 0)).is_null());
  LaunchRequest nameless = OnTwoNodes(kGiB);
  nameless.nodes = {"", ""};
  EXPECT_TRUE(PlacementOf(PodOf(RenderWorkers(nameless, Placing()), 0)).is_null());
  Json leaving = PodOf(RenderWorkers(OnTwoNodes(kGiB), Placing()), 0);
  leaving["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z";
  EXPECT_TRUE(PlacementOf(leaving).is_null());
}

// Takes patches of pods; the first `failures` of them it does not.
class FakeApiServer final : public EmptyApi {
 public:
  explicit FakeApiServer(int failures, int expected) : failures_(failures), expected_(expected) {}
  absl::StatusOr<Json> MergePatch(const std::string& path, const Json& patch) override {
    absl::MutexLock lock(&mutex_);
    if (failures_-- > 0) return absl::UnavailableError("not now");
    patches_[path] += 1;
    if (static_cast<int>(patches_.size()) == expected_ && !all_.HasBeenNotified()) all_.Notify();
    return patch;
  }
  std::map<std::string, int> Patches() {
    all_.WaitForNotification();
    absl::MutexLock lock(&mutex_);
    return patches_;
  }

 private:
  absl::Mutex mutex_;
  int failures_;
  const int expected_;
  std::map<std::string, int> patches_;
  absl::Notification all_;
};

TEST(PodPlacer, TriesAgainWhatTheServerDidNotTakeAndPlacesNoPodTwice) {
  FakeApiServer server(/*failures=*/3, /*expected=*/2);
  const Json job = RenderWorkers(OnTwoNodes(kGiB), Placing());
  auto pods = std::make_shared<Mirror::Objects>();
  for (int rank : {0, 1}) {
    (*pods)["worker-" + std::to_string(rank)] = std::make_shared<const Json>(PodOf(job, rank));
  }
  {
    PodPlacer placer(&server, "train", absl::Milliseconds(1));
    placer.Look(pods);
    server.Patches();
    placer.Look(pods);  // a mirror that lags
  }
  const std::map<std::string, int> wanted = {{"/api/v1/namespaces/train/pods/worker-0", 1},
                                             {"/api/v1/namespaces/train/pods/worker-1", 1}};
  EXPECT_EQ(server.Patches(), wanted);
}

}  // namespace
}  // namespace tessera::scheduler
