#include "scheduler/store/kubernetes_image.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/status_macros.h"
#include "scheduler/store/store_encoding.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;
using Strays = std::vector<std::string>;

// Null: no such job, or a later one of its name.
StoredEntry* Find(StoreImage* image, const JobKey& key, int64_t born) {
  const auto it = image->jobs.find(key);
  return it == image->jobs.end() || it->second.job.born != born ? nullptr : &it->second;
}

absl::Status LoadJobs(const std::vector<Json>& objects, StoreImage* image, Strays* strays) {
  std::map<int64_t, StoredAnswer> answers;
  for (const Json& object : objects) {
    if (KindOf(object) == "r") {
      TESSERA_ASSIGN_OR_RETURN(StoredAnswer answer, AnswerOf(object));
      answers[answer.answer.revision] = std::move(answer);
    }
    if (KindOf(object) != "j") continue;
    TESSERA_ASSIGN_OR_RETURN(StoredJob job, JobOf(object));
    const JobKey key = KeyOf(job.record.job);
    image->revision = std::max(image->revision, job.record.revision);
    if (!job.request_id.empty()) {
      JobRecord answer{.job = job.answer, .processes = "", .notes = "", .revision = job.born};
      answers[job.born] = {key.ns, job.request_id, std::move(answer)};
    }
    image->jobs[key].version = ResourceVersionOf(object);
    image->jobs[key].job = std::move(job);
  }
  for (; answers.size() > kMaxRequestIds; answers.erase(answers.begin())) {
    strays->push_back(AnswerName(answers.begin()->first));
  }
  for (const auto& [revision, answer] : answers) image->KeepAnswer(answer);
  return absl::OkStatus();
}

absl::Status LoadEvents(const std::vector<Json>& objects, StoreImage* image, Strays* strays) {
  for (const Json& object : objects) {
    if (KindOf(object) != "e") continue;
    TESSERA_ASSIGN_OR_RETURN(StoredEvents stored, EventsOf(object));
    StoredEntry* entry = Find(image, stored.key, stored.born);
    if (entry == nullptr) {
      strays->push_back(NameOf(object));
      continue;
    }
    entry->has_events = true;
    entry->events.assign(stored.events.begin(), stored.events.end());
    if (!stored.events.empty()) image->revision = std::max(image->revision, stored.events.back().revision());
  }
  return absl::OkStatus();
}

absl::Status LoadPlans(const std::vector<Json>& objects, StoreImage* image, Strays* strays) {
  std::map<std::pair<JobKey, int64_t>, std::map<int, PlanPart>> plans;  // by job and revision: parts
  for (const Json& object : objects) {
    if (KindOf(object) != "p") continue;
    TESSERA_ASSIGN_OR_RETURN(PlanPart part, PlanPartOf(object));
    if (Find(image, part.key, part.born) == nullptr) {
      strays->push_back(NameOf(object));
      continue;
    }
    const int number = part.part;
    plans[{part.key, part.revision}].emplace(number, std::move(part));
  }
  for (const auto& [id, parts] : plans) {
    const int wanted = parts.begin()->second.parts;
    StoredPlan stored{.revision = id.second, .parts = wanted, .plan = {}};
    std::string bytes;
    for (const auto& [number, part] : parts) bytes += part.bytes;
    image->revision = std::max(image->revision, stored.revision);
    if (static_cast<int>(parts.size()) == wanted && stored.plan.ParseFromString(bytes)) {
      image->jobs[id.first].plans.push_back(std::move(stored));
      continue;
    }
    for (const auto& [number, part] : parts) {
      strays->push_back(PlanPartName(part.key, part.born, part.revision, number));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void StoreImage::KeepAnswer(const StoredAnswer& answer) {
  const RequestKey key{answer.ns, answer.request_id};
  answers[key] = answer.answer;
  answer_order.push_back(key);
  if (answer_order.size() <= kMaxRequestIds) return;
  answers.erase(answer_order.front());
  answer_order.pop_front();
}

absl::StatusOr<StoreImage> ReadImage(const ObjectList& list, std::vector<std::string>* strays) {
  StoreImage image;
  TESSERA_RETURN_IF_ERROR(LoadJobs(list.items, &image, strays));
  TESSERA_RETURN_IF_ERROR(LoadEvents(list.items, &image, strays));
  TESSERA_RETURN_IF_ERROR(LoadPlans(list.items, &image, strays));
  // Each write took one of these too: no revision comes twice, also after a deletion.
  int64_t now = 0;
  if (absl::SimpleAtoi(list.resource_version, &now)) image.revision = std::max(image.revision, now);
  return image;
}

}  // namespace tessera::scheduler
