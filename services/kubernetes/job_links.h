// Which custom resource belongs to which job, kept in a file: an object that is gone was deleted by somebody,
// unless it was not made yet.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tessera::services {

// Thread-safe.
class JobLinks {
 public:
  struct Link {
    std::string name;        // of both
    std::string object_uid;  // of the custom resource
  };

  // A file that is not there is made by the first Set. DataLoss for one that can't be read.
  static absl::StatusOr<std::unique_ptr<JobLinks>> Open(const std::string& file);

  std::optional<Link> Of(const std::string& job_uid) const;
  // The uid of the object that owns what runs for the job; "" = none. Known before the link is: a job may be
  // started while its creation is still being answered.
  std::string OwnerOf(const std::string& job_uid, const std::string& name) const;
  void Expect(const std::string& name, const std::string& object_uid);  // of a job that is being made
  void ExpectNoMore(const std::string& name);
  // The job's uid; "" = none.
  std::string JobOf(const std::string& object_uid) const;
  // Durable when they return OK.
  absl::Status Set(const std::string& job_uid, const Link& link);
  absl::Status Erase(const std::string& job_uid);
  // Those of jobs of this name that are gone: all but that of `object_uid`.
  absl::Status EraseOthers(const std::string& name, const std::string& object_uid);

 private:
  explicit JobLinks(std::string file) : file_(std::move(file)) {}
  absl::Status Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string file_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::string> expected_ ABSL_GUARDED_BY(mutex_);  // by name: the object's uid
  std::map<std::string, Link> links_ ABSL_GUARDED_BY(mutex_);            // by the job's uid
};

}  // namespace tessera::services
