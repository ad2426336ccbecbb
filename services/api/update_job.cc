#include "services/api/update_job.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "google/protobuf/util/field_mask_util.h"
#include "proto/tessera/v1/defaults.h"
#include "proto/tessera/v1/validate.h"
#include "proto/tessera/v1/violation.h"
#include "services/api/field_mask.h"

namespace tessera::services {
namespace {

using google::protobuf::util::FieldMaskUtil;

constexpr const char* kChangeable[] = {"spec.priority",           "spec.queue", "spec.suspend",
                                       "spec.ttl_after_finished", "spec.retry", "spec.deadlines"};

void SetPaths(const google::protobuf::Message& message, const std::string& prefix, int depth,
              google::protobuf::FieldMask* mask) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const auto* field : fields) {
    const std::string path = absl::StrCat(prefix, field->name());
    const bool nested = field->message_type() != nullptr && !field->is_repeated() &&
                        field->message_type()->file()->package() != "google.protobuf";
    if (nested && depth > 0) {
      SetPaths(message.GetReflection()->GetMessage(message, field), path + ".", depth - 1, mask);
    } else {
      mask->add_paths(path);
    }
  }
}

// A whole section that is replaced gets its defaults back where it is silent.
v1::TrainingJob WithDefaults(const v1::TrainingJob& changes) {
  v1::TrainingJob whole;
  whole.set_name("x");
  *whole.mutable_spec()->mutable_retry() = changes.spec().retry();
  *whole.mutable_spec()->mutable_deadlines() = changes.spec().deadlines();
  if (changes.spec().has_priority()) whole.mutable_spec()->set_priority(changes.spec().priority());
  whole.mutable_spec()->set_queue(changes.spec().queue());
  if (changes.spec().has_suspend()) whole.mutable_spec()->set_suspend(changes.spec().suspend());
  if (changes.spec().has_ttl_after_finished())
    *whole.mutable_spec()->mutable_ttl_after_finished() = changes.spec().ttl_after_finished();
  spec::ApplyDefaults(&whole);
  return whole;
}

}  // namespace

bool IsChangeable(const std::string& path) {
  for (const std::string root : kChangeable) {
    if (path == root || absl::StartsWith(path, root + ".")) return true;
  }
  return false;
}

absl::StatusOr<google::protobuf::FieldMask> UpdatePaths(const v1::UpdateTrainingJobRequest& request) {
  google::protobuf::FieldMask mask = request.update_mask();
  TESSERA_RETURN_IF_ERROR(ResolveMask(v1::TrainingJob::descriptor(), "updateMask", &mask));
  if (mask.paths().empty()) {
    v1::TrainingJob changes = request.training_job();
    changes.clear_name();  // the request's own count
    changes.clear_namespace_();
    SetPaths(changes, "", 3, &mask);
  }
  std::vector<spec::Violation> violations;
  if (mask.paths().empty()) {
    violations.push_back(
        {.path = "trainingJob", .message = "changes nothing", .remedy = "set a field of spec"});
  }
  for (const std::string& path : mask.paths()) {
    if (IsChangeable(path)) continue;
    violations.push_back({.path = path,
                          .message = "can't be changed after submission",
                          .remedy = path == "spec.workers.count"
                                        ? "resize the job"
                                        : absl::StrCat("submit another job; changeable are ",
                                                       absl::StrJoin(kChangeable, ", "))});
  }
  constexpr const char* kValidated[] = {"spec.retry", "spec.deadlines", "spec.queue",
                                        "spec.ttlAfterFinished"};
  for (spec::Violation& violation : spec::Validate(WithDefaults(request.training_job()))) {
    const auto holds = [&violation](const char* root) { return absl::StartsWith(violation.path, root); };
    if (std::ranges::any_of(kValidated, holds)) violations.push_back(std::move(violation));
  }
  TESSERA_RETURN_IF_ERROR(spec::MakeInvalid(violations));
  return mask;
}

void ApplyUpdate(const google::protobuf::FieldMask& paths, const v1::TrainingJob& changes,
                 v1::TrainingJobSpec* spec) {
  v1::TrainingJob target;
  target.mutable_spec()->Swap(spec);
  FieldMaskUtil::MergeOptions options;
  options.set_replace_message_fields(true);
  FieldMaskUtil::MergeMessageTo(WithDefaults(changes), paths, options, &target);
  spec->Swap(target.mutable_spec());
}

google::protobuf::FieldMask ChangeableMask() {
  google::protobuf::FieldMask mask;
  for (const char* path : kChangeable) mask.add_paths(path);
  return mask;
}

std::vector<std::string> ChangeableDifferences(const v1::TrainingJobSpec& spec,
                                               const v1::TrainingJob& wanted) {
  v1::TrainingJobSpec after = spec;
  ApplyUpdate(ChangeableMask(), wanted, &after);
  std::vector<std::string> names;
  for (const char* path : kChangeable) {
    const auto* field = v1::TrainingJobSpec::descriptor()->FindFieldByName(path + sizeof("spec.") - 1);
    v1::TrainingJobSpec one, other;
    google::protobuf::FieldMask mask;
    mask.add_paths(field->name());
    FieldMaskUtil::MergeMessageTo(spec, mask, FieldMaskUtil::MergeOptions(), &one);
    FieldMaskUtil::MergeMessageTo(after, mask, FieldMaskUtil::MergeOptions(), &other);
    if (one.SerializeAsString() != other.SerializeAsString()) names.push_back(field->json_name());
  }
  return names;
}

}  // namespace tessera::services
