#include "services/openapi/custom_resource.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "google/protobuf/descriptor.h"
#include "services/api/update_job.h"
#include "services/openapi/schema.h"

namespace tessera::services {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Bounds by which the API server knows what comparing two specs costs at most.
constexpr int kMaxText = 4096;
constexpr int kMaxItems = 1024;
constexpr int kMaxNameLength = 63;

Json ObjectOf(const Descriptor* type);

Json Bounded(Json schema) {
  if (schema["type"] == "string" && !schema.contains("enum") && !schema.contains("format")) {
    schema["maxLength"] = kMaxText;
  }
  return schema;
}

// Of one element, in the subset that Kubernetes takes: one type each, no references, no readOnly.
Json ElementOf(const FieldDescriptor* field) {
  if (field->type() == FieldDescriptor::TYPE_MESSAGE &&
      !absl::StartsWith(field->message_type()->full_name(), "google.protobuf.")) {
    return ObjectOf(field->message_type());
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64 && absl::EndsWith(field->name(), "_bytes")) {
    return {{"x-kubernetes-int-or-string", true}, {"maxLength", kMaxNameLength}};  // 1073741824 or 1Gi
  }
  if (field->type() == FieldDescriptor::TYPE_UINT64)
    return {{"type", "integer"}, {"format", "int64"}, {"minimum", 0}};
  Schemas schemas;
  Json schema = schemas.OfElement(field);
  if (schema["type"].is_array()) schema["type"] = "number";  // what is no number is left out of a status
  if (schema["type"] == "integer") {                         // the format says as much, and doubles can't
    schema.erase("minimum");
    schema.erase("maximum");
  }
  return Bounded(std::move(schema));
}

Json PropertyOf(const FieldDescriptor* field) {
  Json schema;
  if (field->is_map()) {
    schema = {{"type", "object"},
              {"additionalProperties", ElementOf(field->message_type()->map_value())},
              {"maxProperties", kMaxItems}};
  } else if (field->is_repeated()) {
    schema = {{"type", "array"}, {"items", ElementOf(field)}, {"maxItems", kMaxItems}};
  } else {
    schema = ElementOf(field);
  }
  if (const std::string comment = CommentOf(field); !comment.empty()) schema["description"] = comment;
  return schema;
}

Json ObjectOf(const Descriptor* type) {
  Json properties = Json::object();
  for (int i = 0; i < type->field_count(); ++i) {
    properties[type->field(i)->json_name()] = PropertyOf(type->field(i));
  }
  return {{"type", "object"}, {"properties", properties}};
}

Json Rule(const std::string& rule, const std::string& message) {
  return {{"rule", rule}, {"message", message}};
}

// A rule for each part of the spec that must stay as it was submitted, from when tesserad took the job.
void AddUnchangedRules(const Descriptor* spec, Json* rules) {
  for (int i = 0; i < spec->field_count(); ++i) {
    if (IsChangeable(absl::StrCat("spec.", spec->field(i)->name()))) continue;
    const std::string name = spec->field(i)->json_name();
    rules->push_back(Rule(
        absl::Substitute("!has(oldSelf.status) || !has(oldSelf.status.state) || (has(self.spec.$0) == "
                         "has(oldSelf.spec.$0) && (!has(self.spec.$0) || self.spec.$0 == oldSelf.spec.$0))",
                         name),
        absl::StrCat("spec.", name, " can't be changed after submission; submit another job")));
  }
}

Json StatusSchema() {
  Json schema = ObjectOf(SourcesOf("tessera.v1.TrainingJobStatus"));
  Json& conditions = schema["properties"]["conditions"];
  conditions["items"]["required"] = {"type", "status"};
  conditions["x-kubernetes-list-type"] = "map";
  conditions["x-kubernetes-list-map-keys"] = {"type"};
  return schema;
}

Json Column(const char* name, const char* type, const char* path, int priority = 0) {
  Json column = {{"name", name}, {"type", type}, {"jsonPath", path}};
  if (priority > 0) column["priority"] = priority;
  return column;
}

Json Columns() {
  return Json::array(
      {Column("State", "string", ".status.state"), Column("Workers", "integer", ".spec.workers.count"),
       Column("Step", "integer", ".status.step"), Column("Steps", "integer", ".status.totalSteps"),
       Column("Loss", "number", ".status.loss"), Column("Validation", "number", ".status.validationLoss"),
       Column("Restarts", "integer", ".status.restarts", 1),
       Column("Model", "string", ".spec.model.preset", 1), Column("Message", "string", ".status.message", 1),
       Column("Age", "date", ".metadata.creationTimestamp")});
}

}  // namespace

Json TrainingJobDefinition() {
  const Json name_rule = Rule(
      absl::StrCat("size(self.metadata.name) <= ", kMaxNameLength, " && !self.metadata.name.contains('.')"),
      absl::StrCat("metadata.name must have at most ", kMaxNameLength, " characters and no dots"));
  const Descriptor* spec = SourcesOf("tessera.v1.TrainingJobSpec");
  Json rules = Json::array({name_rule});
  AddUnchangedRules(spec, &rules);
  const Json schema = {{"description", "A model that is trained by several workers."},
                       {"type", "object"},
                       {"required", {"spec"}},
                       {"properties",
                        {{"apiVersion", {{"type", "string"}}},
                         {"kind", {{"type", "string"}}},
                         {"metadata", {{"type", "object"}}},
                         {"spec", ObjectOf(spec)},
                         {"status", StatusSchema()}}},
                       {"x-kubernetes-validations", std::move(rules)}};
  const Json version = {{"name", "v1"},
                        {"served", true},
                        {"storage", true},
                        {"subresources", {{"status", Json::object()}}},
                        {"additionalPrinterColumns", Columns()},
                        {"schema", {{"openAPIV3Schema", schema}}}};
  return {{"apiVersion", "apiextensions.k8s.io/v1"},
          {"kind", "CustomResourceDefinition"},
          {"metadata", {{"name", "trainingjobs.tessera.dev"}}},
          {"spec",
           {{"group", "tessera.dev"},
            {"scope", "Namespaced"},
            {"names",
             {{"kind", "TrainingJob"},
              {"listKind", "TrainingJobList"},
              {"plural", "trainingjobs"},
              {"singular", "trainingjob"},
              {"shortNames", {"tj"}}}},
            {"versions", Json::array({version})}}}};
}

}  // namespace tessera::services
