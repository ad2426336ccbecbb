// The Kubernetes door: TrainingJob custom resources of tesserad's namespace and the jobs of the API's
// namespace "default" are kept equal. What is applied with kubectl goes through the same handlers as a call
// over REST.
//
//   object without job      a job is made of it; a fault becomes the condition Accepted=False
//   job without object      an object is made of it, for those who look with kubectl
//   object gone             its job is cancelled and deleted
//   job gone                its object is deleted
//   both                    changeable fields follow the newer of the two; the job's status is the object's
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "scheduler/kube/api_client.h"
#include "scheduler/kube/mirror.h"
#include "scheduler/store/job_store.h"
#include "services/api/api.h"
#include "services/kubernetes/job_links.h"

namespace tessera::services {

inline constexpr char kApiNamespace[] = "default";

// Works on a thread of its own until it is destroyed. All pointers outlive it.
class JobResources {
 public:
  JobResources(scheduler::ApiClient* client, std::string kubernetes_namespace, Api* api,
               scheduler::JobStore* store, JobLinks* links);
  ~JobResources();

  // A job was written. Any thread; does not block.
  void Changed(const scheduler::JobKey& key);

 private:
  using Json = nlohmann::json;
  using Objects = scheduler::Mirror::Objects;

  void Run();
  // By which `due_` may be empty; false: stop.
  bool AwaitWork(std::set<std::string>* names);
  void NoteObjects();
  void NoteStoredJobs();

  void Sync(const std::string& name);
  absl::Status Reconcile(const std::string& name, const Json* object);
  absl::Status CreateObject(const v1::TrainingJob& job);
  absl::Status OwnWorkers(const v1::TrainingJob& job, const std::string& object_uid);
  absl::Status CreateJob(const Json& object);
  absl::Status ForgetObject(const Json& object, const std::string& job_uid);
  absl::Status SyncBoth(const Json& object, const v1::TrainingJob& job);
  absl::Status PushSpec(const Json& object, const v1::TrainingJob& job, const v1::TrainingJob& wanted);
  absl::Status PullSpec(const Json& object, const v1::TrainingJob& job, const v1::TrainingJob& wanted);
  absl::Status WriteStatus(const Json& object, const Json& status);
  void TellNotChanged(const Json& object, const absl::Status& why);
  void TellEvents(const Json& object, const std::string& name);
  void Later(const std::string& name, absl::Time when);

  std::string PathOf(const std::string& name) const;

  scheduler::ApiClient* const client_;
  const std::string namespace_;
  Api* const api_;
  scheduler::JobStore* const store_;
  JobLinks* const links_;
  const absl::Time began_;

  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool objects_changed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, absl::Time> due_ ABSL_GUARDED_BY(mutex_);  // by name: when to look at it

  // Of the thread.
  std::shared_ptr<const Objects> seen_;
  std::set<std::string> unseen_;                   // uids of objects that were made here and not mirrored yet
  std::set<std::string> unowned_;                  // uids of jobs whose workers may lack their owner
  std::set<std::string> deleting_;                 // uids of jobs whose object is gone
  std::map<std::string, absl::Time> written_;      // by name: its last status
  std::map<std::string, absl::Duration> backoff_;  // by name: of what failed
  std::map<std::string, int64_t> told_;            // by name: revision of the newest event told

  scheduler::Mirror mirror_;
  std::thread thread_;
};

}  // namespace tessera::services
