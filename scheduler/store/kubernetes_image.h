// What a Kubernetes store has in memory, and how it is rebuilt of the objects. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/kube/api_client.h"
#include "scheduler/store/kubernetes_records.h"

namespace tessera::scheduler {

struct StoredPlan {
  int64_t revision = 0;
  int parts = 0;
  v1::Plan plan;
};

struct StoredEntry {
  StoredJob job;
  std::string version;  // of its object; "" = to be read again
  bool has_events = false;
  std::deque<StoredPlan> plans;
  std::deque<v1::Event> events;
};

struct StoreImage {
  using RequestKey = std::pair<std::string, std::string>;  // namespace, request id

  int64_t revision = 0;  // no write had a greater one
  std::map<JobKey, StoredEntry> jobs;
  std::map<RequestKey, JobRecord> answers;
  std::deque<RequestKey> answer_order;

  // The oldest beyond kMaxRequestIds goes.
  void KeepAnswer(const StoredAnswer& answer);
};

// `strays` gets the names of objects that belong to no job: a creation or deletion that was cut off left
// them.
absl::StatusOr<StoreImage> ReadImage(const ObjectList& list, std::vector<std::string>* strays);

}  // namespace tessera::scheduler
