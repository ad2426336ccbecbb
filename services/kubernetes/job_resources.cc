#include "services/kubernetes/job_resources.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "scheduler/launch/kubernetes_objects.h"
#include "services/api/update_job.h"
#include "services/kubernetes/job_object.h"

namespace tessera::services {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kProgressInterval = absl::Seconds(2);
constexpr absl::Duration kFirstBackoff = absl::Seconds(1);
constexpr absl::Duration kLongestBackoff = absl::Minutes(1);

std::string UidOf(const Json& object) { return object["metadata"].value("uid", ""); }
int64_t GenerationOf(const Json& object) { return object["metadata"].value("generation", int64_t{0}); }

Json StatusIn(const Json& object) { return object.value("status", Json::object()); }

bool IsBeingDeleted(const Json& object) { return object["metadata"].contains("deletionTimestamp"); }

// Waiting helps: the same object may be taken later.
bool MayPass(const absl::Status& status) {
  return !absl::IsInvalidArgument(status) && !absl::IsUnimplemented(status);
}

}  // namespace

JobResources::JobResources(scheduler::ApiClient* client, std::string kubernetes_namespace, Api* api,
                           scheduler::JobStore* store, JobLinks* links)
    : client_(client),
      namespace_(std::move(kubernetes_namespace)),
      api_(api),
      store_(store),
      links_(links),
      began_(absl::Now()),
      mirror_(client, PathOf(""),
              [this] {
                absl::MutexLock lock(&mutex_);
                objects_changed_ = true;
              }),
      thread_([this] { Run(); }) {}

JobResources::~JobResources() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

std::string JobResources::PathOf(const std::string& name) const {
  return absl::StrCat("/apis/tessera.dev/v1/namespaces/", namespace_, "/trainingjobs",
                      name.empty() ? "" : "/", name);
}

void JobResources::Changed(const scheduler::JobKey& key) {
  if (key.ns == kApiNamespace) Later(key.name, absl::InfinitePast());
}

void JobResources::Later(const std::string& name, absl::Time when) {
  absl::MutexLock lock(&mutex_);
  const auto [it, added] = due_.emplace(name, when);
  if (!added) it->second = std::min(it->second, when);
}

void JobResources::Run() {
  std::set<std::string> names;
  while (AwaitWork(&names)) {
    NoteObjects();
    if (seen_ == nullptr) continue;
    for (const std::string& name : std::exchange(names, {})) Sync(name);
  }
}

bool JobResources::AwaitWork(std::set<std::string>* names) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (stop_ || objects_changed_) return true;
    const absl::Time now = absl::Now();
    return seen_ != nullptr &&
           std::any_of(due_.begin(), due_.end(), [&](const auto& entry) { return entry.second <= now; });
  };
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [name, when] : due_) next = std::min(next, when);
  mutex_.AwaitWithDeadline(absl::Condition(&ready), seen_ == nullptr ? absl::InfiniteFuture() : next);
  objects_changed_ = false;
  const absl::Time now = absl::Now();
  for (auto it = due_.begin(); seen_ != nullptr && it != due_.end();) {
    if (it->second <= now) {
      names->insert(it->first);
      it = due_.erase(it);
    } else {
      ++it;
    }
  }
  return !stop_;
}

// What differs from the last look is due.
void JobResources::NoteObjects() {
  const auto now = mirror_.Now();
  if (now == nullptr || now == seen_) return;
  if (seen_ == nullptr) {
    NoteStoredJobs();
    seen_ = std::make_shared<const Objects>();
  }
  for (const auto& [name, object] : *now) {
    unseen_.erase(UidOf(*object));
    const auto before = seen_->find(name);
    if (before == seen_->end() || before->second != object) Later(name, absl::InfinitePast());
  }
  for (const auto& [name, object] : *seen_) {
    if (!now->contains(name)) Later(name, absl::InfinitePast());
  }
  seen_ = now;
}

void JobResources::NoteStoredJobs() {
  const auto page = store_->List(kApiNamespace, 0, "");
  if (!page.ok()) {
    spdlog::error("event=jobs_unreadable error=\"{}\"", page.status().ToString());
    return;
  }
  for (const scheduler::JobRecord& record : page->jobs) Later(record.job.name(), absl::InfinitePast());
}

void JobResources::Sync(const std::string& name) {
  const auto it = seen_->find(name);
  const std::shared_ptr<const Json> object = it == seen_->end() ? nullptr : it->second;
  const absl::Status status = Reconcile(name, object.get());
  if (status.ok()) {
    backoff_.erase(name);
    return;
  }
  absl::Duration& wait = backoff_.emplace(name, kFirstBackoff).first->second;
  // A conflict is news that the mirror is about to bring.
  if (!absl::IsAborted(status)) {
    spdlog::warn("event=job_resource_failed job={} retry={} error=\"{}\"", name, absl::FormatDuration(wait),
                 status.ToString());
  }
  Later(name, absl::Now() + wait);
  wait = std::min(wait * 2, kLongestBackoff);
}

absl::Status JobResources::Reconcile(const std::string& name, const Json* object) {
  const absl::StatusOr<scheduler::JobRecord> record = store_->Get({kApiNamespace, name});
  if (!record.ok() && !absl::IsNotFound(record.status())) return record.status();
  if (!record.ok()) {
    TESSERA_RETURN_IF_ERROR(links_->EraseOthers(name, object == nullptr ? "" : UidOf(*object)));
    if (object == nullptr || IsBeingDeleted(*object)) return absl::OkStatus();
    if (const std::string job = links_->JobOf(UidOf(*object)); !job.empty())
      return ForgetObject(*object, job);
    return CreateJob(*object);
  }
  const v1::TrainingJob& job = record->job;
  const auto link = links_->Of(job.uid());
  if (link.has_value() && (object == nullptr || UidOf(*object) != link->object_uid)) {
    if (unseen_.contains(link->object_uid)) return absl::OkStatus();  // the mirror brings it
    if (deleting_.contains(job.uid())) return absl::OkStatus();       // its end will be a change of the store
    v1::DeleteTrainingJobRequest request;
    request.set_name(name);
    TESSERA_RETURN_IF_ERROR(api_->jobs.Delete(request).status());
    deleting_.insert(job.uid());
    return absl::OkStatus();
  }
  if (object == nullptr) return CreateObject(job);
  if (IsBeingDeleted(*object)) return absl::OkStatus();
  if (!link.has_value()) {
    const Json annotations = (*object)["metadata"].value("annotations", Json::object());
    if (const std::string other = links_->JobOf(UidOf(*object)); !other.empty())
      return ForgetObject(*object, other);
    if (annotations.value(kUidAnnotation, "") != job.uid()) return CreateJob(*object);
    TESSERA_RETURN_IF_ERROR(links_->Set(job.uid(), {name, UidOf(*object)}));
    unowned_.insert(job.uid());
  }
  if (unowned_.contains(job.uid())) TESSERA_RETURN_IF_ERROR(OwnWorkers(job, UidOf(*object)));
  return SyncBoth(*object, job);
}

absl::Status JobResources::CreateObject(const v1::TrainingJob& job) {
  if (job.status().cancel_requested() && job.status().end_time().seconds() == 0) return absl::OkStatus();
  const auto object = client_->Create(PathOf(""), ObjectOf(job, namespace_));
  if (absl::IsAlreadyExists(object.status())) return absl::OkStatus();  // the mirror brings it
  if (!object.ok()) return object.status();
  unseen_.insert(UidOf(*object));
  TESSERA_RETURN_IF_ERROR(links_->Set(job.uid(), {job.name(), UidOf(*object)}));
  unowned_.insert(job.uid());
  return OwnWorkers(job, UidOf(*object));
}

// Those that were started before the object was made; later ones are its own from the beginning.
absl::Status JobResources::OwnWorkers(const v1::TrainingJob& job, const std::string& object_uid) {
  const std::string jobs = absl::StrCat("/apis/batch/v1/namespaces/", namespace_, "/jobs");
  TESSERA_ASSIGN_OR_RETURN(
      const scheduler::ObjectList list,
      scheduler::ListAll(*client_, absl::StrCat(jobs, "?labelSelector=",
                                                scheduler::QueryEscape("tessera.dev/job-uid=" + job.uid()))));
  for (const Json& item : list.items) {
    if (item["metadata"].contains("ownerReferences")) continue;
    absl::Status owned = client_
                             ->MergePatch(absl::StrCat(jobs, "/", item["metadata"].value("name", "")),
                                          scheduler::OwnedByTrainingJob(job.name(), object_uid))
                             .status();
    if (!owned.ok() && !absl::IsNotFound(owned)) return owned;
  }
  unowned_.erase(job.uid());
  return absl::OkStatus();
}

absl::Status JobResources::CreateJob(const Json& object) {
  const Json status = StatusIn(object);
  const bool refused = !status.contains("state") && status.value("reason", "") == "Invalid";
  if (refused && status.value("observedGeneration", int64_t{0}) == GenerationOf(object))
    return absl::OkStatus();
  absl::Status error;
  auto request = JobRequestOf(object, kApiNamespace);
  if (request.ok()) {
    const std::string& name = request->training_job().name();
    links_->Expect(name, UidOf(object));
    const auto done = absl::MakeCleanup([&] { links_->ExpectNoMore(name); });
    const auto created = api_->jobs.Create(*request);
    if (created.ok()) return links_->Set(created->training_job().uid(), {name, UidOf(object)});
    error = created.status();
  } else {
    error = request.status();
  }
  TESSERA_RETURN_IF_ERROR(WriteStatus(object, RefusedStatus(error, object, absl::Now())));
  return MayPass(error) ? error : absl::OkStatus();
}

absl::Status JobResources::ForgetObject(const Json& object, const std::string& job_uid) {
  absl::Status status = client_->Delete(PathOf(object["metadata"].value("name", "")), UidOf(object),
                                        scheduler::ApiClient::Grace::kItsOwn);
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  return links_->Erase(job_uid);
}

absl::Status JobResources::SyncBoth(const Json& object, const v1::TrainingJob& job) {
  const auto request = JobRequestOf(object, kApiNamespace);
  const bool newer = StatusIn(object).value("observedGeneration", int64_t{0}) != GenerationOf(object);
  if (newer && !request.ok()) {
    TellNotChanged(object, request.status());
  } else if (newer) {
    TESSERA_RETURN_IF_ERROR(PushSpec(object, job, request->training_job()));
  } else if (request.ok()) {
    TESSERA_RETURN_IF_ERROR(PullSpec(object, job, request->training_job()));
  }
  const absl::Time now = absl::Now();
  const Json before = StatusIn(object), after = StatusOf(job, object, now);
  const absl::Time next =
      written_.emplace(job.name(), absl::InfinitePast()).first->second + kProgressInterval;
  if (next > now && !IsNews(before, after)) {
    Later(job.name(), next);
    return absl::OkStatus();
  }
  TellEvents(object, job.name());
  if (before == after) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(WriteStatus(object, after));
  written_[job.name()] = now;
  return absl::OkStatus();
}

// The object was changed: its job follows.
absl::Status JobResources::PushSpec(const Json& object, const v1::TrainingJob& job,
                                    const v1::TrainingJob& wanted) {
  if (ChangeableDifferences(job.spec(), wanted).empty()) return absl::OkStatus();
  v1::UpdateTrainingJobRequest request;
  request.set_name(job.name());
  *request.mutable_training_job() = wanted;
  *request.mutable_update_mask() = ChangeableMask();
  absl::Status status = api_->jobs.Update(request).status();
  if (status.ok() || absl::IsAborted(status) || absl::IsUnavailable(status)) return status;
  TellNotChanged(object, status);
  return absl::OkStatus();
}

void JobResources::TellNotChanged(const Json& object, const absl::Status& why) {
  v1::Event event;
  event.set_revision(-GenerationOf(object));  // not one of the store's
  event.set_type("Warning");
  event.set_reason("NotChanged");
  event.set_message(std::string(why.message()));
  client_->Create(absl::StrCat("/api/v1/namespaces/", namespace_, "/events"), EventOf(event, object))
      .IgnoreError();
}

// The job was changed by another door: its object follows.
absl::Status JobResources::PullSpec(const Json& object, const v1::TrainingJob& job,
                                    const v1::TrainingJob& wanted) {
  const std::vector<std::string> changed = ChangeableDifferences(job.spec(), wanted);
  if (changed.empty()) return absl::OkStatus();
  const Json own = ObjectOf(job, namespace_)["spec"];
  Json spec = Json::object();
  for (const std::string& field : changed) spec[field] = own.value(field, Json());
  const Json patch = {{"metadata", {{"resourceVersion", scheduler::ResourceVersionOf(object)}}},
                      {"spec", std::move(spec)}};
  return client_->MergePatch(PathOf(job.name()) + "?fieldManager=tesserad", patch).status();
}

absl::Status JobResources::WriteStatus(const Json& object, const Json& status) {
  const std::string name = object["metadata"].value("name", "");
  const Json patch = {{"apiVersion", "tessera.dev/v1"},
                      {"kind", "TrainingJob"},
                      {"metadata", {{"name", name}, {"uid", UidOf(object)}}},
                      {"status", status}};
  const absl::Status written = client_->Apply(PathOf(name) + "/status", patch).status();
  return absl::IsNotFound(written) ? absl::OkStatus() : written;
}

// Events that the daemon before this one has told are not told again.
void JobResources::TellEvents(const Json& object, const std::string& name) {
  const auto events = store_->Events({kApiNamespace, name});
  if (!events.ok()) return;
  int64_t& told = told_[name];
  for (const v1::Event& event : *events) {
    if (event.revision() <= told) continue;
    if (absl::FromUnixSeconds(event.time().seconds()) >= began_ - absl::Seconds(1)) {
      const absl::Status status =
          client_->Create(absl::StrCat("/api/v1/namespaces/", namespace_, "/events"), EventOf(event, object))
              .status();
      if (!status.ok() && !absl::IsAlreadyExists(status)) {
        spdlog::warn("event=event_not_told job={} error=\"{}\"", name, status.ToString());
        return;
      }
    }
    told = event.revision();
  }
}

}  // namespace tessera::services
