// TrainingJob custom resources as messages and back. Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tessera/v1/api.pb.h"

namespace tessera::services {

// What the API is asked to create for a custom resource: its name and spec, in the API's namespace `ns`, with
// the object's uid as idempotency key. Errors carry violations.
absl::StatusOr<v1::CreateTrainingJobRequest> JobRequestOf(const nlohmann::json& object,
                                                          const std::string& ns);

// The custom resource of a job that came by another door; values of its environment are hidden.
nlohmann::json ObjectOf(v1::TrainingJob job, const std::string& kubernetes_namespace);

// Name of the annotation by which an object made by ObjectOf names its job's uid.
inline constexpr char kUidAnnotation[] = "tessera.dev/uid";

// `.status` of the object of `job`: the job's own, and the conditions Accepted, Running, Suspended,
// Succeeded, Failed and Cancelled. A condition that `object` has already with the same status keeps its
// transition time.
nlohmann::json StatusOf(const v1::TrainingJob& job, const nlohmann::json& object, absl::Time now);

// `.status` of an object of which no job was made.
nlohmann::json RefusedStatus(const absl::Status& why, const nlohmann::json& object, absl::Time now);

// A difference that people wait for: another state, reason, condition or epoch, and not only progress.
bool IsNews(const nlohmann::json& before, const nlohmann::json& after);

// A core/v1 Event about the object. The same event of the job has the same name.
nlohmann::json EventOf(const v1::Event& event, const nlohmann::json& object);

}  // namespace tessera::services
