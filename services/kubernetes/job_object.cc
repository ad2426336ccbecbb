#include "services/kubernetes/job_object.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/validate.h"

namespace tessera::services {
namespace {

using Json = nlohmann::json;

constexpr char kApiVersion[] = "tessera.dev/v1";
constexpr char kKind[] = "TrainingJob";
constexpr size_t kLongestMessage = 1024;  // of an Event

Json FromMessage(const google::protobuf::Message& message) { return Json::parse(spec::ToJson(message)); }

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

// In a place of a number: NaN and infinities of a run that diverges.
void DropTextsOfNumbers(Json* status) {
  for (auto it = status->begin(); it != status->end();) {
    it = absl::StrContains(it.key(), "oss") && it->is_string() ? status->erase(it) : std::next(it);
  }
}

constexpr absl::string_view kAccepted = "Accepted";

// Five digits are enough for columns and people; the API has them all.
void Round(Json* value) {
  if (value->is_structured()) {
    for (Json& below : *value) Round(&below);
  } else if (double number = 0; value->is_number_float() &&
                                absl::SimpleAtod(absl::StrFormat("%.5g", value->get<double>()), &number)) {
    *value = number;
  }
}

struct Wanted {
  absl::string_view type;
  bool holds;
};

Json ConditionsOf(const std::vector<Wanted>& all, const std::string& reason, const std::string& message,
                  const Json& object, absl::Time now) {
  const Json before = object.value("/status/conditions"_json_pointer, Json::array());
  Json conditions = Json::array();
  for (const Wanted& wanted : all) {
    const std::string status = wanted.holds ? "True" : "False";
    Json condition = {{"type", std::string(wanted.type)},
                      {"status", status},
                      {"reason", reason.empty() ? "Unknown" : reason},
                      {"message", message},
                      {"lastTransitionTime", TimeText(now)}};
    for (const Json& old : before) {
      if (old.value("type", "") != wanted.type || old.value("status", "") != status) continue;
      condition["lastTransitionTime"] = old.value("lastTransitionTime", TimeText(now));
      if (wanted.holds || wanted.type == kAccepted) break;  // tells its newest reason
      condition["reason"] = old.value("reason", reason);
      condition["message"] = old.value("message", message);
    }
    conditions.push_back(std::move(condition));
  }
  return conditions;
}

bool IsRunning(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_WARMUP:
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_REPLANNING:
    case v1::JOB_STATE_DEGRADED:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<v1::CreateTrainingJobRequest> JobRequestOf(const Json& object, const std::string& ns) {
  const Json plain = {{"apiVersion", kApiVersion},
                      {"kind", kKind},
                      {"metadata", {{"name", object["metadata"].value("name", "")}}},
                      {"spec", object.value("spec", Json::object())}};
  v1::CreateTrainingJobRequest request;
  TESSERA_ASSIGN_OR_RETURN(*request.mutable_training_job(), spec::ParseJob(plain.dump()));
  request.set_namespace_(ns);
  request.set_request_id(absl::StrCat("kubernetes-", object["metadata"].value("uid", "")));
  return request;
}

Json ObjectOf(v1::TrainingJob job, const std::string& kubernetes_namespace) {
  spec::HideEnvironment(&job);
  return {{"apiVersion", kApiVersion},
          {"kind", kKind},
          {"metadata",
           {{"name", job.name()},
            {"namespace", kubernetes_namespace},
            {"annotations", {{kUidAnnotation, job.uid()}}}}},
          {"spec", FromMessage(job.spec())}};
}

Json StatusOf(const v1::TrainingJob& job, const Json& object, absl::Time now) {
  Json status = FromMessage(job.status());
  DropTextsOfNumbers(&status);
  Round(&status);
  status["observedGeneration"] = object["metadata"].value("generation", 0);
  const v1::JobState state = job.status().state();
  status["conditions"] = ConditionsOf({{kAccepted, true},
                                       {"Running", IsRunning(state)},
                                       {"Suspended", state == v1::JOB_STATE_SUSPENDED},
                                       {"Succeeded", state == v1::JOB_STATE_SUCCEEDED},
                                       {"Failed", state == v1::JOB_STATE_FAILED},
                                       {"Cancelled", state == v1::JOB_STATE_CANCELLED}},
                                      job.status().reason(), job.status().message(), object, now);
  return status;
}

Json RefusedStatus(const absl::Status& why, const Json& object, absl::Time now) {
  const bool wrong = absl::IsInvalidArgument(why) || absl::IsUnimplemented(why);
  const char* reason = wrong                            ? "Invalid"
                       : absl::IsAlreadyExists(why)     ? "NameTaken"
                       : absl::IsResourceExhausted(why) ? "DoesNotFit"
                                                        : "NotAccepted";
  const std::string message(why.message());
  return {{"observedGeneration", object["metadata"].value("generation", 0)},
          {"reason", reason},
          {"message", message},
          {"conditions", ConditionsOf({{kAccepted, false}}, reason, message, object, now)}};
}

bool IsNews(const Json& before, const Json& after) {
  constexpr std::array<const char*, 6> kTold = {
      "state", "reason", "epoch", "conditions", "observedGeneration", "cancelRequested"};
  return std::any_of(kTold.begin(), kTold.end(), [&](const char* field) {
    return before.value(field, Json()) != after.value(field, Json());
  });
}

Json EventOf(const v1::Event& event, const Json& object) {
  const Json& metadata = object["metadata"];
  const std::string time = FromMessage(event).value("time", "");
  const std::string seconds = time.empty() ? TimeText(absl::Now()) : time.substr(0, 19) + "Z";
  const std::string name = metadata.value("name", ""), ns = metadata.value("namespace", "");
  return {{"apiVersion", "v1"},
          {"kind", "Event"},
          {"metadata",
           {{"name", absl::StrCat(name, ".", metadata.value("uid", "").substr(0, 8), ".", event.revision())},
            {"namespace", ns}}},
          {"involvedObject",
           {{"apiVersion", kApiVersion},
            {"kind", kKind},
            {"name", name},
            {"namespace", ns},
            {"uid", metadata.value("uid", "")}}},
          {"type", event.type() == "Warning" ? "Warning" : "Normal"},
          {"reason", event.reason()},
          {"message", event.message().substr(0, kLongestMessage)},
          {"source", {{"component", "tesserad"}}},
          {"reportingComponent", "tessera.dev/tesserad"},
          {"firstTimestamp", seconds},
          {"lastTimestamp", seconds},
          {"count", 1}};
}

}  // namespace tessera::services
