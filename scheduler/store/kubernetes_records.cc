#include "scheduler/store/kubernetes_records.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/store/store_encoding.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;
constexpr char kKindLabel[] = "tessera.dev/record";

Json Object(const char* kind, const std::string& name, Json data) {
  return {{"apiVersion", "tessera.dev/v1"},
          {"kind", "TrainingRecord"},
          {"metadata", {{"name", name}, {"labels", {{kKindLabel, kind}}}}},
          {"data", std::move(data)}};
}

Json Common(const JobKey& key, int64_t born) {
  return {{"namespace", key.ns}, {"name", key.name}, {"born", absl::StrCat(born)}};
}

std::string Base64(const google::protobuf::MessageLite& message) {
  return absl::Base64Escape(message.SerializeAsString());
}

// Reads the fields of an object; the first that is wrong is the status.
class Reader {
 public:
  explicit Reader(const Json& object)
      : name_(object["metadata"].value("name", "?")), data_(object.value("data", Json::object())) {}

  std::string Text(const char* field) const {
    const auto it = data_.find(field);
    return it != data_.end() && it->is_string() ? it->get<std::string>() : "";
  }
  int64_t Number(const char* field) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(Text(field), &number)) Wrong(field);
    return number;
  }
  std::string Bytes(const char* field) {
    std::string bytes;
    if (!absl::Base64Unescape(Text(field), &bytes)) Wrong(field);
    return bytes;
  }
  void Message(const char* field, google::protobuf::MessageLite* message) {
    if (!message->ParseFromString(Bytes(field))) Wrong(field);
  }
  JobKey Key() const { return {Text("namespace"), Text("name")}; }
  const Json& data() const { return data_; }
  const absl::Status& status() const { return status_; }

 private:
  void Wrong(absl::string_view field) {
    if (!status_.ok()) return;
    status_ = absl::DataLossError(absl::StrCat("trainingrecords.tessera.dev '", name_, "': data.", field,
                                               " can't be read; delete the object to go on without it"));
  }

  const std::string name_;
  const Json data_;
  absl::Status status_;
};

}  // namespace

std::string JobRecordName(const JobKey& key) { return absl::StrCat("j.", key.ns, ".", key.name); }
std::string EventsName(const JobKey& key, int64_t born) {
  return absl::StrCat("e.", key.ns, ".", key.name, ".", born);
}
std::string PlanPartName(const JobKey& key, int64_t born, int64_t revision, int part) {
  return absl::StrCat("p.", key.ns, ".", key.name, ".", born, ".", revision, ".", part);
}
std::string AnswerName(int64_t revision) { return absl::StrCat("r.", revision); }

Json ObjectOf(const StoredJob& job) {
  Json data = Common(KeyOf(job.record.job), job.born);
  data["revision"] = absl::StrCat(job.record.revision);
  data["job"] = Base64(job.record.job);
  data["processes"] = absl::Base64Escape(job.record.processes);
  data["notes"] = absl::Base64Escape(job.record.notes);
  if (!job.request_id.empty()) {
    data["request"] = absl::Base64Escape(job.request_id);
    data["answer"] = Base64(job.answer);
  }
  return Object("j", JobRecordName(KeyOf(job.record.job)), std::move(data));
}

Json JobChange(const JobRecord& before, const JobRecord& after) {
  Json data = {{"revision", absl::StrCat(after.revision)}, {"job", Base64(after.job)}};
  if (before.processes != after.processes) data["processes"] = absl::Base64Escape(after.processes);
  if (before.notes != after.notes) data["notes"] = absl::Base64Escape(after.notes);
  return data;
}

Json EventsObject(const JobKey& key, int64_t born) {
  return Object("e", EventsName(key, born), Common(key, born));
}

Json EventChange(const v1::Event& event, int64_t oldest) {
  Json data = {{absl::StrCat("e", event.revision()), Base64(event)}};
  if (oldest != 0) data[absl::StrCat("e", oldest)] = nullptr;
  return data;
}

std::vector<Json> PlanObjects(const JobKey& key, int64_t born, int64_t revision, const v1::Plan& plan) {
  const std::string bytes = plan.SerializeAsString();
  const int parts = std::max<int>(1, static_cast<int>((bytes.size() + kPlanPartBytes - 1) / kPlanPartBytes));
  std::vector<Json> objects;
  for (int part = 0; part < parts; ++part) {
    Json data = Common(key, born);
    data["revision"] = absl::StrCat(revision);
    data["part"] = absl::StrCat(part);
    data["parts"] = absl::StrCat(parts);
    data["body"] = absl::Base64Escape(absl::string_view(bytes).substr(part * kPlanPartBytes, kPlanPartBytes));
    objects.push_back(Object("p", PlanPartName(key, born, revision, part), std::move(data)));
  }
  return objects;
}

Json ObjectOf(const StoredAnswer& answer) {
  return Object("r", AnswerName(answer.answer.revision),
                {{"namespace", answer.ns},
                 {"request", absl::Base64Escape(answer.request_id)},
                 {"revision", absl::StrCat(answer.answer.revision)},
                 {"answer", Base64(answer.answer.job)}});
}

std::string KindOf(const Json& object) {
  const Json labels = object["metadata"].value("labels", Json::object());
  return labels.value(kKindLabel, "");
}

absl::StatusOr<StoredJob> JobOf(const Json& object) {
  Reader reader(object);
  StoredJob job;
  reader.Message("job", &job.record.job);
  job.born = reader.Number("born");
  job.record.revision = reader.Number("revision");
  job.record.processes = reader.Bytes("processes");
  job.record.notes = reader.Bytes("notes");
  job.request_id = reader.Bytes("request");
  if (!job.request_id.empty()) reader.Message("answer", &job.answer);
  if (!reader.status().ok()) return reader.status();
  return job;
}

absl::StatusOr<StoredEvents> EventsOf(const Json& object) {
  Reader reader(object);
  StoredEvents stored{.key = reader.Key(), .born = reader.Number("born"), .events = {}};
  for (const auto& [field, value] : reader.data().items()) {
    int64_t revision = 0;
    if (absl::StartsWith(field, "e") && absl::SimpleAtoi(field.substr(1), &revision)) {
      reader.Message(field.c_str(), &stored.events.emplace_back());
    }
  }
  std::sort(stored.events.begin(), stored.events.end(),
            [](const v1::Event& a, const v1::Event& b) { return a.revision() < b.revision(); });
  if (!reader.status().ok()) return reader.status();
  return stored;
}

absl::StatusOr<PlanPart> PlanPartOf(const Json& object) {
  Reader reader(object);
  PlanPart part;
  part.key = reader.Key();
  part.born = reader.Number("born");
  part.revision = reader.Number("revision");
  part.part = static_cast<int>(reader.Number("part"));
  part.parts = static_cast<int>(reader.Number("parts"));
  part.bytes = reader.Bytes("body");
  if (!reader.status().ok()) return reader.status();
  return part;
}

absl::StatusOr<StoredAnswer> AnswerOf(const Json& object) {
  Reader reader(object);
  StoredAnswer stored;
  stored.ns = reader.Text("namespace");
  stored.request_id = reader.Bytes("request");
  stored.answer.revision = reader.Number("revision");
  reader.Message("answer", &stored.answer.job);
  if (!reader.status().ok()) return reader.status();
  return stored;
}

}  // namespace tessera::scheduler
