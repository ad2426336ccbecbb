// The Kubernetes store against a real API server (tests/scheduler/kube/with_api_server.sh): the contract of
// all stores, and what is its own: conflicts, answers that are lost, plans above the size limit, strays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "scheduler/kube/kube_config.h"
#include "scheduler/store/kubernetes_records.h"
#include "scheduler/store/kubernetes_store.h"
#include "tests/scheduler/kube/empty_api.h"
#include "tests/scheduler/store/job_store_conformance.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr char kDefinitions[] = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

std::unique_ptr<ApiClient> Client() {
  const auto config = LoadKubeConfig();
  EXPECT_OK(config);
  auto client = MakeApiClient(*config);
  EXPECT_OK(client);
  return *std::move(client);
}

std::string PathIn(const std::string& ns) {
  return absl::StrCat("/apis/tessera.dev/v1/namespaces/", ns, "/trainingrecords");
}

// A namespace of its own for each, in an API server that knows the chart's definition.
absl::Status MakeNamespace(const std::string& ns) {
  const auto client = Client();
  std::ifstream file(TESSERA_RECORDS_DEFINITION);
  absl::Status defined = client->Create(kDefinitions, Json::parse(file)).status();
  if (!defined.ok() && !absl::IsAlreadyExists(defined)) return defined;
  absl::Status made =
      client
          ->Create("/api/v1/namespaces",
                   {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", ns}}}})
          .status();
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
    if (ListAll(*client, PathIn(ns)).ok()) return absl::OkStatus();
  }
  return absl::DeadlineExceededError("the definition is not served");
}

std::string NamespaceOf(const std::string& text) {
  return absl::StrCat("store-", std::hash<std::string>()(text));
}

constexpr StoreKind kKubernetes = {"kubernetes", true,
                                   [](const std::string& file) -> absl::StatusOr<std::unique_ptr<JobStore>> {
                                     const std::string ns = NamespaceOf(file);
                                     if (absl::Status status = MakeNamespace(ns); !status.ok()) return status;
                                     return OpenKubernetesStore(Client(), ns);
                                   }};

INSTANTIATE_TEST_SUITE_P(All, JobStoreConformanceTest, ::testing::Values(kKubernetes),
                         [](const auto& info) { return std::string(info.param.name); });

// An API server whose answers to writes can be lost, after or before it has done them, or that loses the next
// request alone.
class LossyApi : public EmptyApi {
 public:
  enum class Loss { kNone, kAnswer, kRequest, kOneRequest };
  std::atomic<Loss> loss = Loss::kNone;

  absl::StatusOr<Json> Get(const std::string& path) override { return real_->Get(path); }
  absl::StatusOr<Json> Create(const std::string& path, const Json& object) override {
    return Lossy([&] { return real_->Create(path, object); });
  }
  absl::StatusOr<Json> MergePatch(const std::string& path, const Json& patch) override {
    return Lossy([&] { return real_->MergePatch(path, patch); });
  }
  absl::Status Delete(const std::string& path, const std::string& uid, Grace grace) override {
    return real_->Delete(path, uid, grace);
  }

 private:
  template <typename Act>
  absl::StatusOr<Json> Lossy(const Act& act) {
    Loss one = Loss::kOneRequest;
    if (loss.compare_exchange_strong(one, Loss::kNone) || loss == Loss::kRequest)
      return absl::UnavailableError("lost");
    absl::StatusOr<Json> answer = act();
    if (loss == Loss::kAnswer) return absl::UnavailableError("lost");
    return answer;
  }
  const std::unique_ptr<ApiClient> real_ = Client();
};

class KubernetesStore : public ::testing::Test {
 protected:
  void SetUp() override {
    ns_ = NamespaceOf(::testing::UnitTest::GetInstance()->current_test_info()->name());
    ASSERT_OK(MakeNamespace(ns_));
    Open();
  }
  void Open() {
    store_.reset();
    auto api = std::make_unique<LossyApi>();
    api_ = api.get();
    auto store = OpenKubernetesStore(std::move(api), ns_);
    ASSERT_OK(store);
    store_ = *std::move(store);
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const auto list = ListAll(*client_, PathIn(ns_));
    EXPECT_OK(list);
    for (const Json& object : list->items) names.push_back(object["metadata"]["name"]);
    return names;
  }

  std::string ns_;
  std::unique_ptr<ApiClient> client_ = Client();
  LossyApi* api_ = nullptr;
  std::unique_ptr<JobStore> store_;
  const JobKey key_{"default", "a"};
};

TEST_F(KubernetesStore, DoesNotOverwriteWhatAnotherWriterWrote) {
  ASSERT_OK(store_->Create(Job("default", "a"), ""));
  auto other = OpenKubernetesStore(Client(), ns_);
  ASSERT_OK(other);
  JobRecord theirs = *(*other)->Get(key_);
  theirs.job.mutable_status()->set_step(7);
  ASSERT_OK((*other)->Update(theirs));
  JobRecord ours = *store_->Get(key_);
  ours.job.mutable_status()->set_step(3);
  EXPECT_TRUE(absl::IsAborted(store_->Update(ours).status()));
  EXPECT_EQ(store_->Get(key_)->job.status().step(), 7) << "it has read what is there";
}

TEST_F(KubernetesStore, TakesAnUpdateWhoseAnswerWasLostForDone) {
  ASSERT_OK(store_->Create(Job("default", "a"), ""));
  JobRecord record = *store_->Get(key_);
  record.job.mutable_status()->set_step(5);
  api_->loss = LossyApi::Loss::kAnswer;
  EXPECT_TRUE(absl::IsUnavailable(store_->Update(record).status()));
  api_->loss = LossyApi::Loss::kNone;
  EXPECT_TRUE(absl::IsAborted(store_->Update(record).status())) << "its etag is old";
  EXPECT_EQ(store_->Get(key_)->job.status().step(), 5);
}

TEST_F(KubernetesStore, RepeatsAnUpdateThatDidNotArrive) {
  ASSERT_OK(store_->Create(Job("default", "a"), ""));
  JobRecord record = *store_->Get(key_);
  record.job.mutable_status()->set_step(5);
  api_->loss = LossyApi::Loss::kRequest;
  EXPECT_TRUE(absl::IsUnavailable(store_->Update(record).status()));
  EXPECT_EQ(store_->Get(key_)->job.status().step(), 0);
  api_->loss = LossyApi::Loss::kNone;
  EXPECT_OK(store_->Update(record));
  Open();
  EXPECT_EQ(store_->Get(key_)->job.status().step(), 5);
}

TEST_F(KubernetesStore, MakesAJobOfACreationWhoseAnswerWasLost) {
  api_->loss = LossyApi::Loss::kAnswer;
  EXPECT_OK(store_->Create(Job("default", "a"), "id"));
  api_->loss = LossyApi::Loss::kNone;
  EXPECT_OK(store_->Get(key_));
}

TEST_F(KubernetesStore, RepeatsACreationThatDidNotArrive) {
  api_->loss = LossyApi::Loss::kOneRequest;
  EXPECT_OK(store_->Create(Job("default", "a"), "id"));
  api_->loss = LossyApi::Loss::kOneRequest;
  EXPECT_OK(store_->AddEvent(key_, {}));
  Open();
  EXPECT_EQ(store_->Events(key_)->size(), 1u);
  api_->loss = LossyApi::Loss::kRequest;
  EXPECT_TRUE(absl::IsUnavailable(store_->Create(Job("default", "b"), "").status()));
  EXPECT_EQ(Names().size(), 2u) << "the job and its events";
}

TEST_F(KubernetesStore, TakesAJobOfAnotherWriterForNoneOfItsOwn) {
  auto other = OpenKubernetesStore(Client(), ns_);
  ASSERT_OK(other);
  ASSERT_OK((*other)->Create(Job("default", "b"), ""));
  ASSERT_OK((*other)->Create(Job("default", "a"), ""));  // its revision is not the one that ours would have
  api_->loss = LossyApi::Loss::kRequest;
  EXPECT_TRUE(absl::IsAlreadyExists(store_->Create(Job("default", "a"), "").status()));
}

TEST_F(KubernetesStore, KeepsPlansThatAreLargerThanAnObjectMayBe) {
  ASSERT_OK(store_->Create(Job("default", "a"), ""));
  v1::Plan plan;
  plan.set_generation(1);
  plan.set_reason(std::string(3 * kPlanPartBytes + 17, 'f'));
  ASSERT_OK(store_->AddPlan(key_, plan));
  Open();
  const auto plans = store_->Plans(key_);
  ASSERT_TRUE(plans.ok() && plans->size() == 1);
  EXPECT_EQ(plans->front().SerializeAsString(), plan.SerializeAsString());
  ASSERT_OK(store_->Delete(key_, ""));
  EXPECT_THAT(Names(), ElementsAre());
}

TEST_F(KubernetesStore, RemovesWhatBelongsToNoJob) {
  v1::Plan plan;
  plan.set_generation(1);
  ASSERT_OK(store_->Create(Job("default", "a"), "", "", &plan));
  ASSERT_OK(store_->AddEvent(key_, {}));
  const std::string path = PathIn(ns_);
  ASSERT_OK(client_->Delete(absl::StrCat(path, "/", JobRecordName(key_)), "", ApiClient::Grace::kItsOwn));
  EXPECT_EQ(Names().size(), 2u);
  Open();
  EXPECT_THAT(Names(), ElementsAre());
  EXPECT_OK(store_->Create(Job("default", "a"), ""));
  EXPECT_TRUE(store_->Plans(key_)->empty());
}

TEST_F(KubernetesStore, RemembersTheRequestsOfDeletedJobsAndNeverRepeatsARevision) {
  const auto first = store_->Create(Job("default", "a"), "id");
  ASSERT_OK(first);
  ASSERT_OK(store_->Delete(key_, ""));
  Open();
  EXPECT_EQ(store_->Create(Job("default", "a"), "id")->revision, first->revision);
  EXPECT_GT(store_->Create(Job("default", "a"), "")->revision, first->revision + 1);
}

TEST_F(KubernetesStore, NamesTheObjectThatItCannotRead) {
  ASSERT_OK(store_->Create(Job("default", "a"), ""));
  ASSERT_OK(
      client_->MergePatch(absl::StrCat(PathIn(ns_), "/", JobRecordName(key_)), {{"data", {{"job", "?"}}}}));
  const auto again = OpenKubernetesStore(Client(), ns_);
  EXPECT_TRUE(absl::IsDataLoss(again.status()));
  EXPECT_THAT(again.status().message(), HasSubstr("'j.default.a': data.job"));
}

}  // namespace
}  // namespace tessera::scheduler
