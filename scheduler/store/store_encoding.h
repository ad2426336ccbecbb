// What all stores agree on: page tokens, etags and when two creations are equal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/store/job_store.h"

namespace tessera::scheduler {

// Opaque to clients. The listing goes on after `last`.
std::string EncodePageToken(const std::string& ns, const JobKey& last);
// nullopt for an empty token. InvalidArgument for one that is damaged or of a listing of another namespace.
absl::StatusOr<std::optional<JobKey>> DecodePageToken(const std::string& ns, const std::string& token);

std::string EtagOf(int64_t revision);

// Bytes that are equal exactly for equal namespace, name and spec.
std::string CreationFingerprint(const v1::TrainingJob& job);

JobKey KeyOf(const v1::TrainingJob& job);
absl::Status NoSuchJob(const JobKey& key);
absl::Status JobExists(const JobKey& key);
absl::Status StaleEtag(const JobKey& key);
absl::Status RequestIdReused(const std::string& request_id);

}  // namespace tessera::scheduler
