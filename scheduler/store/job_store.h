// Where jobs, their plans and events are kept. Implementations: memory, sqlite,
// later kubernetes; one conformance suite runs over all of them.
//
// Thread-safe. Every write gets the next revision of the store; a job's etag
// changes with it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tessera/v1/api.pb.h"

namespace tessera::scheduler {

struct JobKey {
  std::string ns;
  std::string name;
  friend bool operator==(const JobKey&, const JobKey&) = default;
  friend auto operator<=>(const JobKey&, const JobKey&) = default;
};

// What the scheduler keeps of a job beside its public message.
struct JobRecord {
  v1::TrainingJob job;
  std::string processes;  // launcher's own record of what it started; opaque
  int64_t revision = 0;
};

struct JobPage {
  std::vector<JobRecord> jobs;
  std::string next_page_token;
};

class JobStore {
 public:
  virtual ~JobStore() = default;
  // AlreadyExists if the name is taken. With a request_id seen before: the first
  // answer for an equal job, InvalidArgument for another one.
  virtual absl::StatusOr<JobRecord> Create(const v1::TrainingJob& job, const std::string& request_id) = 0;
  virtual absl::StatusOr<JobRecord> Get(const JobKey& key) = 0;
  // ns "-": all. Ordered by (namespace, name). page_size <= 0: everything.
  virtual absl::StatusOr<JobPage> List(const std::string& ns, int page_size, const std::string& page_token) = 0;
  // Aborted if record.job.etag is not the stored one.
  virtual absl::StatusOr<JobRecord> Update(const JobRecord& record) = 0;
  virtual absl::Status Delete(const JobKey& key, const std::string& etag) = 0;

  // Plans, events and other things that accompany a job, newest last. Bounded per job.
  virtual absl::Status AddPlan(const JobKey& key, const v1::Plan& plan) = 0;
  virtual absl::StatusOr<std::vector<v1::Plan>> Plans(const JobKey& key) = 0;
  virtual absl::Status AddEvent(const JobKey& key, const v1::Event& event) = 0;
  virtual absl::StatusOr<std::vector<v1::Event>> Events(const JobKey& key) = 0;
};


}  // namespace tessera::scheduler
