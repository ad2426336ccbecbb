// What all stores agree on: page tokens, etags and when two creations are equal.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
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

// JobStore::List over jobs that are held in memory. record_of: entry of the map -> its JobRecord.
template <typename Entry, typename RecordOf>
absl::StatusOr<JobPage> PageOf(const std::map<JobKey, Entry>& jobs, const std::string& ns, int page_size,
                               const std::string& page_token, const RecordOf& record_of) {
  TESSERA_ASSIGN_OR_RETURN(const std::optional<JobKey> after, DecodePageToken(ns, page_token));
  JobPage page;
  for (auto it = after ? jobs.upper_bound(*after) : jobs.begin(); it != jobs.end(); ++it) {
    if (ns != "-" && it->first.ns != ns) continue;
    if (page_size > 0 && static_cast<int>(page.jobs.size()) == page_size) {
      page.next_page_token = EncodePageToken(ns, KeyOf(page.jobs.back().job));
      break;
    }
    page.jobs.push_back(record_of(it->second));
  }
  return page;
}

absl::Status NoSuchJob(const JobKey& key);
absl::Status JobExists(const JobKey& key);
absl::Status StaleEtag(const JobKey& key);
absl::Status RequestIdReused(const std::string& request_id);

}  // namespace tessera::scheduler
