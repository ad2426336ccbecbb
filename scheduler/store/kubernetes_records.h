// The objects of a Kubernetes store: TrainingRecord resources of tessera.dev/v1, whose `data` maps names to
// text. Pure. Bytes are in base64; an API server takes objects of about a megabyte, so plans come in parts.
//
//   j.<namespace>.<name>                            a job's record
//   e.<namespace>.<name>.<born>                     its events, each under e<revision>
//   p.<namespace>.<name>.<born>.<revision>.<part>   a part of a plan
//   r.<revision>                                    the first answer to a request id whose job is deleted
//
// <born> is the revision at which the job was made: what was left of an earlier job of the name is none of
// its.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "scheduler/store/job_store.h"

namespace tessera::scheduler {

inline constexpr size_t kPlanPartBytes = 512u << 10;

struct StoredJob {
  JobRecord record;
  int64_t born = 0;
  std::string request_id;
  v1::TrainingJob answer;  // to that request; its revision is `born`
};

struct StoredAnswer {
  std::string ns, request_id;
  JobRecord answer;
};

struct PlanPart {
  JobKey key;
  int64_t born = 0, revision = 0;
  int part = 0, parts = 0;
  std::string bytes;
};

struct StoredEvents {
  JobKey key;
  int64_t born = 0;
  std::vector<v1::Event> events;  // by revision
};

std::string JobRecordName(const JobKey& key);
std::string EventsName(const JobKey& key, int64_t born);
std::string PlanPartName(const JobKey& key, int64_t born, int64_t revision, int part);
std::string AnswerName(int64_t revision);

nlohmann::json ObjectOf(const StoredJob& job);
// `data` of a merge patch that makes `after` of `before`.
nlohmann::json JobChange(const JobRecord& before, const JobRecord& after);
nlohmann::json EventsObject(const JobKey& key, int64_t born);
// `data` of a merge patch that adds an event and, unless 0, removes that of revision `oldest`.
nlohmann::json EventChange(const v1::Event& event, int64_t oldest);
std::vector<nlohmann::json> PlanObjects(const JobKey& key, int64_t born, int64_t revision,
                                        const v1::Plan& plan);
nlohmann::json ObjectOf(const StoredAnswer& answer);

// "j", "e", "p" or "r"; "" for an object that is none of a store.
std::string KindOf(const nlohmann::json& object);
// DataLoss names the object that can't be read.
absl::StatusOr<StoredJob> JobOf(const nlohmann::json& object);
absl::StatusOr<StoredEvents> EventsOf(const nlohmann::json& object);
absl::StatusOr<PlanPart> PlanPartOf(const nlohmann::json& object);
absl::StatusOr<StoredAnswer> AnswerOf(const nlohmann::json& object);

}  // namespace tessera::scheduler
