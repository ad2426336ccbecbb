#include "proto/tessera/v1/job_codec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/tessera/v1/message_reader.h"
#include "proto/tessera/v1/text_tree.h"

namespace tessera::spec {
namespace {

constexpr std::string_view kApiVersion = "tessera.dev/v1";
constexpr std::string_view kKind = "TrainingJob";

void Remove(Tree* tree, std::initializer_list<std::string_view> keys) {
  std::erase_if(tree->items, [&](const Tree& item) {
    return std::find(keys.begin(), keys.end(), item.key) != keys.end();
  });
}

void RequireText(const Tree& item, std::string_view wanted, std::vector<Violation>* violations) {
  if (item.IsScalar() && item.text == wanted) return;
  violations->push_back({.path = item.key,
                         .value = Display(item),
                         .message = absl::StrCat("must be ", absl::string_view(wanted.data(), wanted.size())),
                         .line = item.line});
}

// Moves metadata.name and metadata.namespace to where the plain form has them.
void LiftMetadata(Tree* root, std::vector<Violation>* violations) {
  const Tree metadata = *root->Find("metadata");
  Remove(root, {"metadata"});
  if (metadata.kind != Tree::Kind::kMap) {
    violations->push_back({.path = "metadata",
                           .value = Display(metadata),
                           .message = "must be a mapping of fields",
                           .line = metadata.line});
    return;
  }
  for (const Tree& item : metadata.items) {
    if (item.key == "name" || item.key == "namespace") {
      const Tree* plain = root->Find(item.key);
      if (plain == nullptr) {
        root->items.push_back(item);
      } else if (plain->text != item.text) {
        violations->push_back({.path = absl::StrCat("metadata.", item.key),
                               .value = Display(item),
                               .message = absl::StrCat("differs from ", item.key),
                               .remedy = "keep one of them",
                               .line = item.line});
      }
    } else if (item.key == "labels" || item.key == "annotations") {
      violations->push_back({.path = absl::StrCat("metadata.", item.key),
                             .message = "is not kept by this service",
                             .remedy = "remove it",
                             .line = item.line,
                             .unimplemented = true});
    } else if (item.key != "uid" && item.key != "resourceVersion" && item.key != "creationTimestamp" &&
               item.key != "generation" && item.key != "managedFields") {
      violations->push_back({.path = absl::StrCat("metadata.", item.key),
                             .message = "is not a field",
                             .remedy = "known here: name, namespace",
                             .line = item.line});
    }
  }
}

// Fields of the spec at the top level: says so once for each, and takes them out.
void RejectBareSpec(Tree* root, std::vector<Violation>* violations) {
  const auto* job = v1::TrainingJob::descriptor();
  const auto* spec = v1::TrainingJobSpec::descriptor();
  const auto has = [](const google::protobuf::Descriptor* type, const std::string& key) {
    for (int i = 0; i < type->field_count(); ++i) {
      if (type->field(i)->name() == key || type->field(i)->json_name() == key) return true;
    }
    return false;
  };
  std::erase_if(root->items, [&](const Tree& item) {
    if (has(job, item.key) || !has(spec, item.key)) return false;
    violations->push_back({.path = item.key,
                           .message = "is a field of the spec",
                           .remedy = absl::StrCat("put it under \"spec:\", as spec.", item.key),
                           .line = item.line});
    return true;
  });
}

}  // namespace

absl::StatusOr<v1::TrainingJob> ParseJob(std::string_view text) {
  std::vector<Violation> violations;
  Tree root = ParseText(text, &violations);
  v1::TrainingJob job;
  if (root.kind == Tree::Kind::kMap) {
    if (const Tree* item = root.Find("apiVersion")) RequireText(*item, kApiVersion, &violations);
    if (const Tree* item = root.Find("kind")) RequireText(*item, kKind, &violations);
    if (root.Find("metadata") != nullptr) LiftMetadata(&root, &violations);
    Remove(&root, {"apiVersion", "kind", "uid", "etag", "createTime", "create_time", "status"});
    RejectBareSpec(&root, &violations);
    ReadMessage(root, "", &job, &violations);
  } else if (violations.empty()) {
    violations.push_back(
        {.value = Display(root), .message = "must be a mapping with name and spec", .line = root.line});
  }
  if (!violations.empty()) return MakeInvalid(violations);
  return job;
}

absl::Status ParseMessage(std::string_view text, google::protobuf::Message* message) {
  message->Clear();
  std::vector<Violation> violations;
  const Tree root = ParseText(text, &violations);
  if (violations.empty()) ReadMessage(root, "", message, &violations);
  return MakeInvalid(violations);
}

}  // namespace tessera::spec
