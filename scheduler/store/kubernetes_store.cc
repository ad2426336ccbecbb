#include "scheduler/store/kubernetes_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "scheduler/store/kubernetes_image.h"
#include "scheduler/store/kubernetes_records.h"
#include "scheduler/store/store_encoding.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;

constexpr int kPageSize = 50;  // objects may have a megabyte
constexpr int kTries = 3;

class KubernetesStore : public JobStore {
 public:
  KubernetesStore(std::unique_ptr<ApiClient> client, const std::string& ns)
      : client_(std::move(client)),
        path_(absl::StrCat("/apis/tessera.dev/v1/namespaces/", ns, "/trainingrecords")) {}

  absl::Status Load();

  absl::StatusOr<JobRecord> Create(const v1::TrainingJob& job, const std::string& request_id,
                                   const std::string& notes, const v1::Plan* plan) override;
  absl::StatusOr<std::optional<JobRecord>> FindRequest(const v1::TrainingJob& job,
                                                       const std::string& request_id) override {
    absl::MutexLock lock(&mutex_);
    return FirstAnswer(job, request_id);
  }
  absl::StatusOr<JobRecord> Get(const JobKey& key) override {
    absl::MutexLock lock(&mutex_);
    const auto it = image_.jobs.find(key);
    if (it == image_.jobs.end()) return NoSuchJob(key);
    return it->second.job.record;
  }
  absl::StatusOr<JobPage> List(const std::string& ns, int page_size, const std::string& page_token) override;
  absl::StatusOr<JobRecord> Update(const JobRecord& record) override;
  absl::Status Delete(const JobKey& key, const std::string& etag) override;
  absl::Status AddPlan(const JobKey& key, const v1::Plan& plan) override;
  absl::StatusOr<std::vector<v1::Plan>> Plans(const JobKey& key) override;
  absl::Status AddEvent(const JobKey& key, const v1::Event& event) override;
  absl::StatusOr<std::vector<v1::Event>> Events(const JobKey& key) override;

 private:
  absl::StatusOr<std::optional<JobRecord>> FirstAnswer(const v1::TrainingJob& job,
                                                       const std::string& request_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes an object. Where the answer leaves open whether it is there, it is looked for and, if it is not
  // there, made again: what is returned then may be another writer's of the same name.
  absl::StatusOr<Json> Make(const Json& object);
  // Reads a job's record anew. Aborted: it is another one by now.
  absl::Status ReadAgain(const JobKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_);
  absl::StatusOr<StoredPlan> WritePlan(const JobKey& key, int64_t born, int64_t revision,
                                       const v1::Plan& plan);
  absl::Status Remove(const std::string& name);
  void RemoveParts(const JobKey& key, const StoredEntry& entry);
  std::string PathOf(const std::string& name) const { return absl::StrCat(path_, "/", name); }
  int64_t NextRevision() {
    absl::MutexLock lock(&mutex_);
    return ++image_.revision;
  }

  const std::unique_ptr<ApiClient> client_;
  const std::string path_;
  absl::Mutex writing_;  // held over requests; before mutex_
  absl::Mutex mutex_ ABSL_ACQUIRED_AFTER(writing_);
  StoreImage image_ ABSL_GUARDED_BY(mutex_);
};

absl::Status KubernetesStore::Load() {
  absl::MutexLock writing(&writing_);
  TESSERA_ASSIGN_OR_RETURN(const ObjectList list, ListAll(*client_, path_, kPageSize));
  std::vector<std::string> strays;
  {
    absl::MutexLock lock(&mutex_);
    TESSERA_ASSIGN_OR_RETURN(image_, ReadImage(list, &strays));
  }
  for (const std::string& name : strays) TESSERA_RETURN_IF_ERROR(Remove(name));
  return absl::OkStatus();
}

absl::StatusOr<JobRecord> KubernetesStore::Create(const v1::TrainingJob& job, const std::string& request_id,
                                                  const std::string& notes, const v1::Plan* plan) {
  absl::MutexLock writing(&writing_);
  const JobKey key = KeyOf(job);
  StoredEntry entry;
  {
    absl::MutexLock lock(&mutex_);
    TESSERA_ASSIGN_OR_RETURN(std::optional<JobRecord> seen, FirstAnswer(job, request_id));
    if (seen.has_value()) return *std::move(seen);
    if (image_.jobs.contains(key)) return JobExists(key);
    JobRecord& record = entry.job.record;
    record.job = job;
    record.notes = notes;
    record.revision = entry.job.born = ++image_.revision;
    record.job.set_etag(EtagOf(record.revision));
    entry.job.request_id = request_id;
    if (!request_id.empty()) entry.job.answer = record.job;
  }
  // The job's own object comes last: without it the others are strays.
  if (plan != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(StoredPlan stored, WritePlan(key, entry.job.born, entry.job.born, *plan));
    entry.plans.push_back(std::move(stored));
  }
  absl::StatusOr<Json> created = Make(ObjectOf(entry.job));
  if (created.ok()) {
    const absl::StatusOr<StoredJob> stored = JobOf(*created);
    if (!stored.ok()) created = stored.status();
    if (stored.ok() && stored->born != entry.job.born) created = JobExists(key);
  }
  if (!created.ok()) {
    RemoveParts(key, entry);
    return absl::IsAlreadyExists(created.status()) ? JobExists(key) : created.status();
  }
  entry.version = ResourceVersionOf(*created);
  absl::MutexLock lock(&mutex_);
  if (!request_id.empty()) image_.KeepAnswer({key.ns, request_id, entry.job.record});
  JobRecord record = entry.job.record;
  image_.jobs[key] = std::move(entry);
  return record;
}

absl::StatusOr<Json> KubernetesStore::Make(const Json& object) {
  absl::StatusOr<Json> made;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    made = client_->Create(path_, object);
    const bool came = attempt > 0 && absl::IsAlreadyExists(made.status());
    if (!absl::IsUnavailable(made.status()) && !came) return made;
    absl::StatusOr<Json> there = client_->Get(PathOf(NameOf(object)));
    if (there.ok()) return there;
    if (!absl::IsNotFound(there.status())) return made;
  }
  return made;
}

absl::StatusOr<JobPage> KubernetesStore::List(const std::string& ns, int page_size,
                                              const std::string& page_token) {
  absl::MutexLock lock(&mutex_);
  return PageOf(image_.jobs, ns, page_size, page_token,
                [](const StoredEntry& entry) { return entry.job.record; });
}

absl::StatusOr<JobRecord> KubernetesStore::Update(const JobRecord& record) {
  absl::MutexLock writing(&writing_);
  const JobKey key = KeyOf(record.job);
  JobRecord before, next = record;
  std::string version;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = image_.jobs.find(key);
    if (it == image_.jobs.end()) return NoSuchJob(key);
    version = it->second.version;
  }
  if (version.empty()) TESSERA_RETURN_IF_ERROR(ReadAgain(key));
  {
    absl::MutexLock lock(&mutex_);
    const StoredEntry& entry = image_.jobs[key];
    before = entry.job.record;
    version = entry.version;
    if (before.job.etag() != record.job.etag()) return StaleEtag(key);
    next.revision = ++image_.revision;
    next.job.set_etag(EtagOf(next.revision));
  }
  const absl::StatusOr<Json> written =
      client_->MergePatch(PathOf(JobRecordName(key)),
                          {{"metadata", {{"resourceVersion", version}}}, {"data", JobChange(before, next)}});
  {
    absl::MutexLock lock(&mutex_);
    image_.jobs[key].version = written.ok() ? ResourceVersionOf(*written) : "";
    if (written.ok()) image_.jobs[key].job.record = next;
  }
  if (written.ok()) return next;
  if (!absl::IsAborted(written.status()) && !absl::IsNotFound(written.status())) return written.status();
  TESSERA_RETURN_IF_ERROR(ReadAgain(key));
  return StaleEtag(key);  // of the object alone, as somebody's label on it
}

absl::Status KubernetesStore::ReadAgain(const JobKey& key) {
  const absl::StatusOr<Json> object = client_->Get(PathOf(JobRecordName(key)));
  absl::MutexLock lock(&mutex_);
  if (absl::IsNotFound(object.status())) {
    image_.jobs.erase(key);
    return NoSuchJob(key);
  }
  TESSERA_RETURN_IF_ERROR(object.status());
  TESSERA_ASSIGN_OR_RETURN(StoredJob stored, JobOf(*object));
  StoredEntry& entry = image_.jobs[key];
  entry.version = ResourceVersionOf(*object);
  if (stored.record.revision == entry.job.record.revision) return absl::OkStatus();
  image_.revision = std::max(image_.revision, stored.record.revision);
  entry.job = std::move(stored);
  return StaleEtag(key);
}

absl::Status KubernetesStore::Delete(const JobKey& key, const std::string& etag) {
  absl::MutexLock writing(&writing_);
  StoredEntry entry;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = image_.jobs.find(key);
    if (it == image_.jobs.end()) return NoSuchJob(key);
    entry = it->second;
    ++image_.revision;
  }
  if (!etag.empty() && entry.job.record.job.etag() != etag) return StaleEtag(key);
  if (!entry.job.request_id.empty()) {
    const StoredAnswer answer{
        key.ns,
        entry.job.request_id,
        {.job = entry.job.answer, .processes = "", .notes = "", .revision = entry.job.born}};
    const absl::Status kept = Make(ObjectOf(answer)).status();
    if (!kept.ok() && !absl::IsAlreadyExists(kept)) return kept;
  }
  TESSERA_RETURN_IF_ERROR(Remove(JobRecordName(key)));
  RemoveParts(key, entry);
  absl::MutexLock lock(&mutex_);
  image_.jobs.erase(key);
  return absl::OkStatus();
}

absl::Status KubernetesStore::AddPlan(const JobKey& key, const v1::Plan& plan) {
  absl::MutexLock writing(&writing_);
  const int64_t revision = NextRevision();
  int64_t born = 0;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = image_.jobs.find(key);
    if (it == image_.jobs.end()) return NoSuchJob(key);
    born = it->second.job.born;
  }
  TESSERA_ASSIGN_OR_RETURN(StoredPlan stored, WritePlan(key, born, revision, plan));
  std::vector<std::string> old;
  {
    absl::MutexLock lock(&mutex_);
    std::deque<StoredPlan>& plans = image_.jobs[key].plans;
    plans.push_back(std::move(stored));
    for (; plans.size() > kMaxPlansPerJob; plans.pop_front()) {
      for (int part = 0; part < plans.front().parts; ++part)
        old.push_back(PlanPartName(key, born, plans.front().revision, part));
    }
  }
  for (const std::string& name : old) TESSERA_RETURN_IF_ERROR(Remove(name));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::Plan>> KubernetesStore::Plans(const JobKey& key) {
  absl::MutexLock lock(&mutex_);
  const auto it = image_.jobs.find(key);
  if (it == image_.jobs.end()) return NoSuchJob(key);
  std::vector<v1::Plan> plans;
  for (const StoredPlan& stored : it->second.plans) plans.push_back(stored.plan);
  return plans;
}

absl::Status KubernetesStore::AddEvent(const JobKey& key, const v1::Event& event) {
  absl::MutexLock writing(&writing_);
  v1::Event stamped = event;
  stamped.set_revision(NextRevision());
  int64_t born = 0, oldest = 0;
  bool has_events = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = image_.jobs.find(key);
    if (it == image_.jobs.end()) return NoSuchJob(key);
    born = it->second.job.born;
    has_events = it->second.has_events;
    if (it->second.events.size() >= kMaxEventsPerJob) oldest = it->second.events.front().revision();
  }
  if (!has_events) {
    const absl::Status made = Make(EventsObject(key, born)).status();
    if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  }
  TESSERA_RETURN_IF_ERROR(
      client_->MergePatch(PathOf(EventsName(key, born)), {{"data", EventChange(stamped, oldest)}}).status());
  absl::MutexLock lock(&mutex_);
  StoredEntry& entry = image_.jobs[key];
  entry.has_events = true;
  entry.events.push_back(stamped);
  if (oldest != 0) entry.events.pop_front();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::Event>> KubernetesStore::Events(const JobKey& key) {
  absl::MutexLock lock(&mutex_);
  const auto it = image_.jobs.find(key);
  if (it == image_.jobs.end()) return NoSuchJob(key);
  return std::vector<v1::Event>(it->second.events.begin(), it->second.events.end());
}

absl::StatusOr<std::optional<JobRecord>> KubernetesStore::FirstAnswer(const v1::TrainingJob& job,
                                                                      const std::string& request_id) {
  const auto seen = image_.answers.find({job.namespace_(), request_id});
  if (request_id.empty() || seen == image_.answers.end()) return std::nullopt;
  if (CreationFingerprint(seen->second.job) != CreationFingerprint(job)) return RequestIdReused(request_id);
  return seen->second;
}

absl::StatusOr<StoredPlan> KubernetesStore::WritePlan(const JobKey& key, int64_t born, int64_t revision,
                                                      const v1::Plan& plan) {
  const std::vector<Json> objects = PlanObjects(key, born, revision, plan);
  for (const Json& object : objects) TESSERA_RETURN_IF_ERROR(Make(object).status());
  return StoredPlan{.revision = revision, .parts = static_cast<int>(objects.size()), .plan = plan};
}

absl::Status KubernetesStore::Remove(const std::string& name) {
  const absl::Status status = client_->Delete(PathOf(name), "", ApiClient::Grace::kItsOwn);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

// What stays goes when the store is opened next.
void KubernetesStore::RemoveParts(const JobKey& key, const StoredEntry& entry) {
  std::vector<std::string> names;
  if (entry.has_events) names.push_back(EventsName(key, entry.job.born));
  for (const StoredPlan& plan : entry.plans) {
    for (int part = 0; part < plan.parts; ++part)
      names.push_back(PlanPartName(key, entry.job.born, plan.revision, part));
  }
  for (const std::string& name : names) {
    if (const absl::Status status = Remove(name); !status.ok())
      spdlog::warn("event=record_not_removed name={} error=\"{}\"", name, status.ToString());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> OpenKubernetesStore(std::unique_ptr<ApiClient> client,
                                                              const std::string& ns) {
  auto store = std::make_unique<KubernetesStore>(std::move(client), ns);
  TESSERA_RETURN_IF_ERROR(store->Load());
  return store;
}

}  // namespace tessera::scheduler
