#include "scheduler/launch/kubernetes_objects.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

KubernetesOptions Options() {
  return {.ns = "train",
          .worker_image = "registry.example/tessera-worker@sha256:" + std::string(64, 'a'),
          .service_account = "tessera-worker",
          .state = {"pvc:tessera-state", "/var/lib/tessera"},
          .data = {{"hostPath:/srv/data", "/data"}}};
}

LaunchRequest Request() {
  return {.job_name = "llama",
          .job_uid = "0123456789abcdef0123456789abcdef",
          .epoch = 2,
          .world_size = 4,
          .run_directory = "/var/lib/tessera/jobs/0123456789abcdef0123456789abcdef",
          .scheduler = "tessera.train.svc:7700",
          .token_file = "/var/lib/tessera/jobs/0123456789abcdef0123456789abcdef/worker-token-epoch-2",
          .cpu_threads = 2,
          .memory_bytes = int64_t{1} << 30,
          .env = {{"A", "costs $(HOME)"}, {"TESSERA_JOB", "another"}},
          .reads = {"/data/corpus", "/var/lib/tessera/example"},
          .writes = {"/var/lib/tessera/kept"}};
}

TEST(KubernetesObjects, AreAsTheGoldenFileHasThem) {
  const Json rendered = Json::array(
      {RenderWorkers(Request(), Options()), RenderNetworkPolicy(Request(), Options(), "the-uid-of-the-job")});
  const std::string path = TESSERA_GOLDEN "/kubernetes/workers.json";
  if (std::getenv("TESSERA_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << rendered.dump(2) << "\n";
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(rendered.dump(2) + "\n", golden.str()) << "TESSERA_UPDATE_GOLDENS=1 writes it anew";
}

TEST(KubernetesObjects, AJobsEnvironmentNeitherExpandsNorReplacesOurs) {
  const Json job = RenderWorkers(Request(), Options());
  std::map<std::string, std::string> env;
  for (const Json& variable : job["spec"]["template"]["spec"]["containers"][0]["env"]) {
    EXPECT_TRUE(env.emplace(variable["name"], variable.value("value", "")).second);
  }
  EXPECT_EQ(env["A"], "costs $$(HOME)");
  EXPECT_EQ(env["TESSERA_JOB"], Request().job_uid);
}

TEST(KubernetesObjects, AWorkerSeesOfTheStateWhatItsJobNames) {
  LaunchRequest request = Request();
  const std::string own = request.run_directory;
  request.reads = {own + "/checkpoints", "/var/lib/tessera/jobs/other/checkpoints/step-9", "/elsewhere"};
  request.writes.clear();
  const Json job = RenderWorkers(request, Options());
  std::map<std::string, bool> seen;  // by subPath: read-only
  for (const Json& mount : job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]) {
    if (mount["name"] == "state") seen[mount.value("subPath", "")] = mount.value("readOnly", false);
  }
  const std::map<std::string, bool> wanted = {{own.substr(std::string("/var/lib/tessera/").size()), false},
                                              {"jobs/other/checkpoints/step-9", true}};
  EXPECT_EQ(seen, wanted);
}

TEST(KubernetesObjects, ACustomResourceOwnsItsWorkers) {
  EXPECT_FALSE(RenderWorkers(Request(), Options())["metadata"].contains("ownerReferences"));
  const Json owner =
      RenderWorkers(Request(), Options(), "uid-of-the-object")["metadata"]["ownerReferences"][0];
  EXPECT_EQ(owner["kind"], "TrainingJob");
  EXPECT_EQ(owner["name"], "llama");
  EXPECT_EQ(owner["uid"], "uid-of-the-object");
}

TEST(KubernetesObjects, WorkersWithGpusAskForThemAndOthersDoNot) {
  KubernetesOptions options = Options();
  options.gpus = {.resource = "example.com/gpu",
                  .runtime_class = "nvidia",
                  .tolerations = R"([{"key": "example.com/gpu", "operator": "Exists"}])"};
  ASSERT_OK(CheckKubernetesOptions(options));
  const Json without = RenderWorkers(Request(), options)["spec"]["template"]["spec"];
  EXPECT_FALSE(without.contains("runtimeClassName"));
  EXPECT_FALSE(without.contains("tolerations"));
  LaunchRequest request = Request();
  request.gpus = 1;
  const Json with = RenderWorkers(request, options)["spec"]["template"]["spec"];
  EXPECT_EQ(with["containers"][0]["resources"]["limits"]["example.com/gpu"], 1);
  EXPECT_EQ(with["runtimeClassName"], "nvidia");
  EXPECT_EQ(with["tolerations"][0]["key"], "example.com/gpu");
}

TEST(KubernetesObjects, AWorkerHasATokenOfItsPodAndTheAuthorityOfTheService) {
  KubernetesOptions options = Options();
  options.token_audience = "tessera";
  options.ca_secret = "tessera-tls";
  const Json pod = RenderWorkers(Request(), options)["spec"]["template"]["spec"];
  Json volume, mount;
  for (const Json& each : pod["volumes"]) {
    if (each["name"] == "service") volume = each;
  }
  for (const Json& each : pod["containers"][0]["volumeMounts"]) {
    if (each["name"] == "service") mount = each;
  }
  EXPECT_EQ(volume["projected"]["sources"], Json::parse(R"([
      {"serviceAccountToken": {"path": "token", "audience": "tessera", "expirationSeconds": 3600}},
      {"secret": {"name": "tessera-tls", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}])"));
  EXPECT_EQ(volume["projected"]["defaultMode"], 0440);
  EXPECT_EQ(mount, Json::parse(R"({"name": "service", "mountPath": "/var/run/tessera", "readOnly": true})"));
  std::map<std::string, std::string> env;
  for (const Json& variable : pod["containers"][0]["env"])
    env[variable["name"]] = variable.value("value", "");
  EXPECT_EQ(env["TESSERA_TOKEN_FILE"], "/var/run/tessera/token");
  EXPECT_EQ(env["TESSERA_CA_FILE"], "/var/run/tessera/ca.crt");
  EXPECT_FALSE(pod["automountServiceAccountToken"]) << "the API server is nobody's business";
}

TEST(KubernetesObjects, WithKueueAGroupWaitsInTheQueueOfItsJob) {
  KubernetesOptions options = Options();
  options.kueue_queue = "shared";
  const Json any = RenderWorkers(Request(), options);
  EXPECT_EQ(any["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "shared");
  EXPECT_TRUE(any["spec"]["suspend"]);
  EXPECT_THAT(HeldBecause(any), HasSubstr("queue 'shared'"));
  LaunchRequest request = Request();
  request.queue = "team-a";
  Json own = RenderWorkers(request, options);
  EXPECT_EQ(own["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team-a");
  own["spec"]["suspend"] = false;  // admitted
  EXPECT_EQ(HeldBecause(own), "");
  EXPECT_FALSE(RenderWorkers(request, Options())["spec"].contains("suspend"));
}

TEST(KubernetesObjects, WorkersHaveThePriorityClassOfTheOption) {
  KubernetesOptions options = Options();
  options.priority_class = "batch";
  EXPECT_EQ(RenderWorkers(Request(), options)["spec"]["template"]["spec"]["priorityClassName"], "batch");
  EXPECT_FALSE(RenderWorkers(Request(), Options())["spec"]["template"]["spec"].contains("priorityClassName"));
}

TEST(KubernetesObjects, MetricsOfWorkersAreReachedAtTheirPortAndNothingElseIs) {
  KubernetesOptions options = Options();
  options.metrics_port = 7071;
  const Json job = RenderWorkers(Request(), options);
  EXPECT_EQ(job["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"], 7071);
  const Json last = job["spec"]["template"]["spec"]["containers"][0]["env"].back();
  EXPECT_EQ(last["value"], "$(TESSERA_BIND_ADDRESS):7071");
  const Json open = RenderNetworkPolicy(Request(), options, "uid")["spec"]["ingress"];
  EXPECT_EQ(open.size(), 2);
  EXPECT_EQ(open[1]["ports"], Json::array({{{"port", "metrics"}}}));
  EXPECT_EQ(RenderNetworkPolicy(Request(), Options(), "uid")["spec"]["ingress"].size(), 1);
}

TEST(KubernetesObjects, OptionsSayWhatWouldBeRight) {
  KubernetesOptions options = Options();
  EXPECT_OK(CheckKubernetesOptions(options));
  options.state.source = "emptyDir";
  EXPECT_THAT(CheckKubernetesOptions(options).message(), HasSubstr("pvc:CLAIM or hostPath:/DIRECTORY"));
  options = Options();
  options.data[0].mount = "data";
  EXPECT_THAT(CheckKubernetesOptions(options).message(), HasSubstr("absolute path"));
  options = Options();
  options.worker_image.clear();
  EXPECT_THAT(CheckKubernetesOptions(options).message(), HasSubstr("--worker-image"));
  options = Options();
  options.gpus.tolerations = "nvidia.com/gpu";
  EXPECT_THAT(CheckKubernetesOptions(options).message(), HasSubstr("--worker-gpu-tolerations"));
}

Json Pod(const Json& status) {
  return {{"metadata", {{"name", "w-0-x"}}}, {"spec", {{"nodeName", "node1"}}}, {"status", status}};
}

Json Ended(const char* phase, int code, const char* reason) {
  return {{"phase", phase},
          {"containerStatuses",
           Json::array({{{"state", {{"terminated", {{"exitCode", code}, {"reason", reason}}}}}}})}};
}

TEST(KubernetesPods, OneThatWaitsIsAliveAndSaysWhy) {
  const ProcessState unschedulable =
      StateOfPod(Pod({{"phase", "Pending"},
                      {"conditions", Json::array({{{"type", "PodScheduled"},
                                                   {"status", "False"},
                                                   {"reason", "Unschedulable"},
                                                   {"message", "0/2 nodes are available"}}})}}),
                 0);
  EXPECT_TRUE(unschedulable.running);
  EXPECT_EQ(unschedulable.waits, "Unschedulable: 0/2 nodes are available");
  const ProcessState imageless = StateOfPod(
      Pod({{"phase", "Pending"},
           {"containerStatuses",
            Json::array({{{"state", {{"waiting", {{"reason", "ErrImagePull"}, {"message", "no"}}}}}}})}}),
      0);
  EXPECT_EQ(imageless.waits, "ErrImagePull: no");
}

TEST(KubernetesPods, AnEndIsKnownByCodeSignalAndMemory) {
  const ProcessState done = StateOfPod(Pod(Ended("Succeeded", 0, "Completed")), 3);
  EXPECT_FALSE(done.running);
  EXPECT_TRUE(done.exit_known);
  EXPECT_EQ(done.rank, 3);
  EXPECT_EQ(done.pod, "w-0-x");
  EXPECT_EQ(done.node, "node1");
  const ProcessState crashed = StateOfPod(Pod(Ended("Failed", 139, "Error")), 0);
  EXPECT_EQ(crashed.signal, 11);
  const ProcessState memory = StateOfPod(Pod(Ended("Failed", 137, "OOMKilled")), 0);
  EXPECT_EQ(memory.signal, 0);
  EXPECT_EQ(memory.exit_code, 12);  // the worker's own code for it
}

TEST(KubernetesPods, AnEvictedOneHasNoExitCodeOfItsOwn) {
  Json status = Ended("Failed", 137, "Error");
  status["conditions"] = Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}});
  const ProcessState evicted = StateOfPod(Pod(status), 0);
  EXPECT_FALSE(evicted.running);
  EXPECT_FALSE(evicted.exit_known);
  EXPECT_FALSE(StateOfPod(Pod({{"phase", "Failed"}, {"reason", "Evicted"}}), 0).exit_known);
}

}  // namespace
}  // namespace tessera::scheduler
