#include "services/api/field_mask.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/util/field_mask_util.h"
#include "proto/tessera/v1/violation.h"

namespace tessera::services {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// "" when there is no such field.
std::string ProtoPath(const Descriptor* type, const std::string& path) {
  std::string spelled;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    const FieldDescriptor* found = nullptr;
    for (int i = 0; type != nullptr && i < type->field_count(); ++i) {
      if (type->field(i)->name() == name || type->field(i)->json_name() == name) found = type->field(i);
    }
    if (found == nullptr) return "";
    absl::StrAppend(&spelled, spelled.empty() ? "" : ".", found->name());
    // Nothing below a list, a map or a well-known type can be named.
    type = found->is_repeated() ? nullptr : found->message_type();
    if (type != nullptr && type->file()->package() == "google.protobuf") type = nullptr;
  }
  return spelled;
}

}  // namespace

absl::Status ResolveMask(const Descriptor* type, const std::string& parameter,
                         google::protobuf::FieldMask* mask) {
  std::vector<spec::Violation> violations;
  bool all = false;
  for (std::string& path : *mask->mutable_paths()) {
    all = all || path == "*";
    const std::string spelled = path == "*" ? path : ProtoPath(type, path);
    if (spelled.empty()) {
      violations.push_back({.path = parameter,
                            .value = absl::StrCat("\"", path.substr(0, 60), "\""),
                            .message = absl::StrCat("is no field of ", type->name()),
                            .remedy = "use paths like name or status.state, separated by commas"});
    }
    path = spelled;
  }
  if (all) mask->clear_paths();
  return spec::MakeInvalid(violations);
}

void ApplyReadMask(const google::protobuf::FieldMask& mask, google::protobuf::Message* message) {
  if (mask.paths().empty()) return;
  google::protobuf::util::FieldMaskUtil::TrimMessage(mask, message);
}

}  // namespace tessera::services
