// What may be changed of a job that was submitted already.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/v1/api.pb.h"

namespace tessera::services {

// "spec.priority", "spec.retry.backoff": may be changed.
bool IsChangeable(const std::string& path);

// The paths to change, in the spelling of the proto: those of the request's mask, or all that its job sets.
// InvalidArgument with a violation for each that can't be changed, each value that is wrong, or when there is
// none.
absl::StatusOr<google::protobuf::FieldMask> UpdatePaths(const v1::UpdateTrainingJobRequest& request);

// Copies `paths` from `changes` into `spec`.
void ApplyUpdate(const google::protobuf::FieldMask& paths, const v1::TrainingJob& changes,
                 v1::TrainingJobSpec* spec);

// All that may be changed, and the names in JSON ("ttlAfterFinished") of what differs in `wanted`, in which
// absent fields have their defaults.
google::protobuf::FieldMask ChangeableMask();
std::vector<std::string> ChangeableDifferences(const v1::TrainingJobSpec& spec,
                                               const v1::TrainingJob& wanted);

}  // namespace tessera::services
