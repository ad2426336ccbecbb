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
  std::string notes;      // the controller's own, what status does not say; opaque
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
  // Jobs are equal by namespace, name and spec. Request ids are scoped by namespace; "" is none.
  // The notes and the plan (may be null) are stored with the job or not at all.
  virtual absl::StatusOr<JobRecord> Create(const v1::TrainingJob& job, const std::string& request_id,
                                           const std::string& notes, const v1::Plan* plan) = 0;
  absl::StatusOr<JobRecord> Create(const v1::TrainingJob& job, const std::string& request_id) {
    return Create(job, request_id, "", nullptr);
  }
  // What Create would answer to a request_id seen before; nullopt for a new one and for "".
  virtual absl::StatusOr<std::optional<JobRecord>> FindRequest(const v1::TrainingJob& job,
                                                               const std::string& request_id) = 0;
  virtual absl::StatusOr<JobRecord> Get(const JobKey& key) = 0;
  // ns "-": all. Ordered by (namespace, name). page_size <= 0: everything.
  virtual absl::StatusOr<JobPage> List(const std::string& ns, int page_size,
                                       const std::string& page_token) = 0;
  // NotFound, or Aborted if record.job.etag is not the stored one.
  virtual absl::StatusOr<JobRecord> Update(const JobRecord& record) = 0;
  // With its plans and events. NotFound; Aborted if `etag` is neither empty nor the stored one.
  virtual absl::Status Delete(const JobKey& key, const std::string& etag) = 0;

  // Plans and events accompany a job, newest last, bounded per job. NotFound without the job.
  // An event gets its revision here.
  virtual absl::Status AddPlan(const JobKey& key, const v1::Plan& plan) = 0;
  virtual absl::StatusOr<std::vector<v1::Plan>> Plans(const JobKey& key) = 0;
  virtual absl::Status AddEvent(const JobKey& key, const v1::Event& event) = 0;
  virtual absl::StatusOr<std::vector<v1::Event>> Events(const JobKey& key) = 0;
};

// Payload of the InvalidArgument for a request_id that belongs to another job.
inline constexpr char kRequestIdReusedPayload[] = "tessera.dev/request-id-reused";

// Bounds per job; the oldest go first. Request ids are kept for the newest kMaxRequestIds creations.
inline constexpr int kMaxPlansPerJob = 200;
inline constexpr int kMaxEventsPerJob = 1000;
inline constexpr int kMaxRequestIds = 10000;

// "memory" or "sqlite:<file>". InvalidArgument for another kind; errors of the kind name the file.
absl::StatusOr<std::unique_ptr<JobStore>> OpenJobStore(const std::string& location);

}  // namespace tessera::scheduler
