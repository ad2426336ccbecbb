#include "services/cli/job_file.h"

#include <yaml-cpp/yaml.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include "absl/strings/string_view.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/validate.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Json = nlohmann::ordered_json;

// Fields that name a file of this machine, as written to JSON.
constexpr std::array<absl::string_view, 6> kPathFields = {
    "/spec/model/configPath", "/spec/model/initialWeights", "/spec/data/train",
    "/spec/data/validation",  "/spec/data/tokenizer",       "/spec/checkpoint/uri"};

absl::Status Fault(std::string path, std::string value, std::string message, std::string remedy) {
  spec::Violation violation;
  violation.path = std::move(path);
  violation.value = std::move(value);
  violation.message = std::move(message);
  violation.remedy = std::move(remedy);
  return spec::MakeInvalid({violation});
}

void MakeAbsolute(const std::string& folder, Json* job) {
  for (absl::string_view field : kPathFields) {
    const Json::json_pointer pointer{std::string(field)};
    if (!job->contains(pointer) || !(*job)[pointer].is_string()) continue;
    const std::string value = (*job)[pointer].get<std::string>();
    if (absl::StartsWith(value, "file:///")) {
      (*job)[pointer] = value.substr(std::string("file://").size());
      continue;
    }
    if (value.empty() || absl::StrContains(value, "://") || fs::path(value).is_absolute()) continue;
    (*job)[pointer] = (fs::path(folder) / value).lexically_normal().string();
  }
}

Json FromYaml(const YAML::Node& node) {
  if (node.IsNull()) return nullptr;
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& item : node) list.push_back(FromYaml(item));
    return list;
  }
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& item : node) object[item.first.Scalar()] = FromYaml(item.second);
    return object;
  }
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text == "true" || text == "false") return text == "true";
  int64_t integer = 0;
  double number = 0;
  if (absl::SimpleAtoi(text, &integer)) return integer;
  if (absl::SimpleAtod(text, &number)) return number;
  return text;
}

const FieldDescriptor* FindField(const Descriptor& message, const std::string& name) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor* field = message.field(i);
    if (field->name() == name || field->json_name() == name) return field;
  }
  return nullptr;
}

std::string FieldNames(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return absl::StrJoin(names, ", ");
}

// The path as the JSON form names it.
absl::StatusOr<std::vector<std::string>> Resolve(const std::string& path) {
  const std::vector<std::string> segments = absl::StrSplit(path, '.');
  const Descriptor* message = v1::TrainingJob::descriptor();
  std::vector<std::string> resolved;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (message == nullptr) {
      return Fault(path, "", absl::StrCat(absl::StrJoin(resolved, "."), " is not a group of fields"),
                   absl::StrCat("use ", absl::StrJoin(resolved, "."), "=VALUE"));
    }
    const FieldDescriptor* field = FindField(*message, segments[i]);
    if (field == nullptr) {
      const bool without_spec =
          i == 0 && FindField(*v1::TrainingJobSpec::descriptor(), segments[0]) != nullptr;
      return Fault(path, "", absl::StrCat("there is no field '", segments[i], "'"),
                   without_spec
                       ? absl::StrCat("use spec.", path)
                       : absl::StrCat("one of ", i == 0 ? "name, namespace, spec" : FieldNames(*message)));
    }
    resolved.push_back(field->json_name());
    if (field->is_map()) {
      if (i + 2 < segments.size() || i + 1 == segments.size()) break;
      resolved.push_back(segments[i + 1]);
      return resolved;
    }
    message = field->is_repeated() ? nullptr : field->message_type();
    // Durations and timestamps are written as text.
    if (message != nullptr && absl::StartsWith(message->full_name(), "google.protobuf.")) message = nullptr;
  }
  return resolved;
}

void CollectDifferences(const Json& wanted, const Json& existing, const std::string& path,
                        std::vector<std::string>* out) {
  if (wanted.is_object()) {
    for (const auto& [key, value] : wanted.items()) {
      const Json below = existing.is_object() && existing.contains(key) ? existing[key] : Json();
      CollectDifferences(value, below, absl::StrCat(path, ".", key), out);
    }
    return;
  }
  const bool equal = wanted.is_number() && existing.is_number()
                         ? wanted.get<double>() == existing.get<double>()
                         : wanted == existing;
  if (!equal) {
    out->push_back(absl::StrCat(path, ": ", existing.is_null() ? "not set" : existing.dump(), ", asked for ",
                                wanted.dump()));
  }
}

}  // namespace

absl::Status ApplySet(const std::string& assignment, Json* job) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Fault(absl::StrCat("--set ", assignment), "", "has no '='", "write --set spec.schedule.steps=200");
  }
  const std::string path = assignment.substr(0, equals), text = assignment.substr(equals + 1);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> segments, Resolve(path));
  Json value;
  try {
    value = text.empty() ? Json("") : FromYaml(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    return Fault(path, text, absl::StrCat("is not YAML: ", error.msg), "quote the value");
  }
  Json* place = job;
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    if (!place->is_object()) *place = Json::object();
    place = &(*place)[segments[i]];
  }
  if (!place->is_object()) *place = Json::object();
  if (value.is_null()) {
    place->erase(segments.back());
  } else {
    (*place)[segments.back()] = std::move(value);
  }
  return absl::OkStatus();
}

namespace {

absl::StatusOr<v1::TrainingJob> Changed(Json tree, const JobFileOptions& options) {
  for (const auto& assignment : options.sets) TESSERA_RETURN_IF_ERROR(ApplySet(assignment, &tree));
  MakeAbsolute(options.working_directory, &tree);
  absl::StatusOr<v1::TrainingJob> changed = spec::ParseJob(tree.dump());
  if (changed.ok()) return changed;
  // Lines of the intermediate text mean nothing to anybody.
  std::vector<spec::Violation> violations = spec::ViolationsFrom(changed.status());
  if (violations.empty()) return changed.status();
  for (auto& violation : violations) violation.line = 0;
  return spec::MakeInvalid(violations);
}

}  // namespace

absl::StatusOr<v1::TrainingJob> LoadJobFile(const std::string& path, const JobFileOptions& options) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!file || fs::is_directory(path) || !(text << file.rdbuf())) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  absl::StatusOr<v1::TrainingJob> job = spec::ParseJob(text.str());
  if (!job.ok()) {
    // A fault of the text as a whole has no field to name.
    std::vector<spec::Violation> faults = spec::ViolationsFrom(job.status());
    for (auto& fault : faults) {
      if (fault.path.empty()) fault.path = path;
    }
    return faults.empty() ? job.status() : spec::MakeInvalid(faults);
  }
  Json tree = spec::ToJsonValue(*job);
  MakeAbsolute(fs::absolute(path).parent_path().string(), &tree);
  return Changed(std::move(tree), options);
}

absl::StatusOr<v1::TrainingJob> ChangeJob(const v1::TrainingJob& job, const JobFileOptions& options) {
  return Changed(spec::ToJsonValue(job), options);
}

std::vector<std::string> Differences(const v1::TrainingJob& wanted, const v1::TrainingJob& existing) {
  std::vector<std::string> out;
  v1::TrainingJobSpec asked = wanted.spec();
  asked.clear_suspend();  // changes while the job lives
  // The service shows names, not values.
  for (auto& [name, value] : *asked.mutable_env()) {
    const auto hidden = existing.spec().env().find(name);
    if (hidden != existing.spec().env().end() && hidden->second == spec::kHiddenValue)
      value = spec::kHiddenValue;
  }
  CollectDifferences(spec::ToJsonValue(asked), spec::ToJsonValue(existing.spec()), "spec", &out);
  return out;
}

}  // namespace tessera::cli
