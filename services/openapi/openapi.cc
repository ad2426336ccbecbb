#include "services/openapi/openapi.h"

#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "services/api/route.h"
#include "services/openapi/schema.h"
#include "services/rest/problem.h"

namespace tessera::services {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::MethodDescriptor;

constexpr char kLabelPattern[] = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";

bool InPath(const Route& route, const FieldDescriptor* field) {
  return absl::StrContains(route.path, absl::StrCat("{", field->name(), "}"));
}

Json HeaderParameter(const char* name, const char* description, Json schema) {
  return {{"name", name}, {"in", "header"}, {"description", description}, {"schema", std::move(schema)}};
}

Json PathSchema(const Route& route, const FieldDescriptor* field, Schemas* schemas) {
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) return schemas->OfField(field);
  const bool list = absl::EndsWith(route.path, "}/trainingJobs") && absl::string_view(route.method) == "GET";
  Json schema = {{"type", "string"}, {"pattern", kLabelPattern}, {"maxLength", 63}};
  if (list) schema = {{"type", "string"}, {"pattern", "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|-)$"}};
  return schema;
}

Json Parameters(const Route& route, const MethodDescriptor* method, Schemas* schemas) {
  Json parameters = Json::array();
  const bool all_in_body = absl::string_view(route.body) == "*";
  for (int i = 0; i < method->input_type()->field_count(); ++i) {
    const FieldDescriptor* field = method->input_type()->field(i);
    if (InPath(route, field)) {
      parameters.push_back({{"name", field->name()},
                            {"in", "path"},
                            {"required", true},
                            {"schema", PathSchema(route, field, schemas)}});
      continue;
    }
    if (field->name() == "request_id") {
      parameters.push_back(HeaderParameter("Idempotency-Key",
                                           "The same key and body get the first answer again",
                                           {{"type", "string"}, {"maxLength", 128}}));
    }
    if (field->name() == "etag") {
      parameters.push_back(
          HeaderParameter("If-Match", "The job's etag as it was read", {{"type", "string"}}));
    }
    const bool mask =
        field->message_type() != nullptr && field->message_type()->full_name() == "google.protobuf.FieldMask";
    if (all_in_body || field->name() == route.body || (field->message_type() != nullptr && !mask)) continue;
    Json parameter = {{"name", field->json_name()}, {"in", "query"}, {"schema", schemas->OfField(field)}};
    if (field->name() == "request_id") parameter["schema"]["maxLength"] = 128;
    parameters.push_back(std::move(parameter));
  }
  if (route.stream) {
    parameters.push_back(HeaderParameter("Last-Event-ID", "Go on after this event",
                                         {{"type", "integer"}, {"format", "int64"}, {"minimum", 0}}));
  }
  return parameters;
}

Json Content(std::initializer_list<const char*> types, const Json& schema) {
  Json content = Json::object();
  for (const char* type : types) content[type] = {{"schema", schema}};
  return content;
}

Json Body(const Route& route, const MethodDescriptor* method, Schemas* schemas) {
  const absl::string_view body = route.body;
  if (body == "*") {
    std::set<std::string> in_path;
    for (int i = 0; i < method->input_type()->field_count(); ++i) {
      if (InPath(route, method->input_type()->field(i)))
        in_path.insert(method->input_type()->field(i)->name());
    }
    return {{"required", false},
            {"content", Content({"application/json", "application/yaml"},
                                schemas->Object(method->input_type(), in_path))}};
  }
  const auto* field = method->input_type()->FindFieldByName(route.body);
  return {{"required", true},
          {"content",
           Content({"application/json", "application/yaml"}, schemas->Reference(field->message_type()))}};
}

// "status.workers" of the response's type, as an object of that one field.
Json PartSchema(const google::protobuf::Descriptor* type, const std::string& path, Schemas* schemas) {
  const size_t dot = path.find('.');
  const FieldDescriptor* field = type->FindFieldByName(path.substr(0, dot));
  if (dot != std::string::npos) return PartSchema(field->message_type(), path.substr(dot + 1), schemas);
  return {{"type", "object"},
          {"properties", {{field->json_name(), schemas->OfField(field)}}},
          {"additionalProperties", false}};
}

std::vector<int> Failures(const Route& route) {
  const absl::string_view rpc = route.rpc;
  const bool create = rpc == "JobService.CreateTrainingJob";
  const bool named = absl::StrContains(route.path, "{name}");
  std::vector<int> codes = {400, 401, 403};
  if (named) codes.push_back(404);
  if (create || absl::string_view(route.method) != "GET") codes.push_back(409);
  if (route.stream) codes.push_back(410);
  if (*route.body != '\0') codes.insert(codes.end(), {413, 415});
  if (create) codes.push_back(422);
  codes.insert(codes.end(), {429, 431});
  if (create || rpc == "JobService.ResizeTrainingJob") codes.push_back(501);
  codes.insert(codes.end(), {503, 504});
  return codes;
}

Json ProblemSchema() {
  const Json text = {{"type", "string"}};
  const Json fault = {{"type", "object"},
                      {"properties",
                       {{"path", text},
                        {"message", text},
                        {"value", text},
                        {"remedy", text},
                        {"line", {{"type", "integer"}}}}},
                      {"required", {"path", "message"}}};
  return {{"type", "object"},
          {"description",
           "RFC 9457, with the canonical code, a reason for programs, and one entry per wrong field"},
          {"properties",
           {{"type", text},
            {"title", text},
            {"status", {{"type", "integer"}}},
            {"detail", text},
            {"code", text},
            {"reason", text},
            {"errors", {{"type", "array"}, {"items", fault}}}}},
          {"required", {"type", "title", "status", "detail", "code", "reason"}}};
}

Json Responses(const Route& route, const MethodDescriptor* method, Schemas* schemas) {
  Json answer;
  const Json whole = schemas->Reference(method->output_type());
  if (route.stream) {
    answer = {{"description", "Server-sent events: `id` is the revision, `data` the update as JSON"},
              {"content", Content({"text/event-stream"}, {{"type", "string"}})}};
  } else {
    answer = {{"description", "OK"},
              {"content", Content({"application/json"},
                                  *route.part != '\0' ? PartSchema(method->output_type(), route.part, schemas)
                                                      : whole)}};
  }
  if (absl::string_view(route.rpc) == "JobService.GetLogs")
    answer["content"]["text/plain"] = {{"schema", {{"type", "string"}}}};
  Json responses = {{"200", answer}};
  if (absl::string_view(route.rpc) == "JobService.CreateTrainingJob") {
    responses["200"]["description"] = "The job and its plan; nothing was stored (validateOnly)";
    responses["201"] = {{"description", "Created"}, {"content", Content({"application/json"}, whole)}};
  }
  for (const int code : Failures(route))
    responses[absl::StrCat(code)] = {{"$ref", absl::StrCat("#/components/responses/", code)}};
  return responses;
}

Json Operation(const Route& route, Schemas* schemas) {
  const MethodDescriptor* method = SourcePool().FindMethodByName(absl::StrCat("tessera.v1.", route.rpc));
  TESSERA_CHECK(method != nullptr);
  Json operation = {{"operationId", *route.part != '\0' ? "ListWorkers" : method->name()},
                    {"tags", {method->service()->name()}}};
  if (const std::string comment = CommentOf(method); !comment.empty()) operation["description"] = comment;
  if (Json parameters = Parameters(route, method, schemas); !parameters.empty())
    operation["parameters"] = std::move(parameters);
  if (*route.body != '\0') operation["requestBody"] = Body(route, method, schemas);
  operation["responses"] = Responses(route, method, schemas);
  return operation;
}

Json PlainOperation(const PlainRoute& route) {
  Json operation = {
      {"operationId", route.name},
      {"tags", {"Service"}},
      {"description", route.description},
      {"responses",
       {{"200", {{"description", "OK"}, {"content", Content({route.content_type}, Json::object())}}}}}};
  if (route.open) {
    operation["security"] = Json::array();
  } else {
    operation["responses"]["401"] = {{"$ref", "#/components/responses/401"}};
    operation["responses"]["403"] = {{"$ref", "#/components/responses/403"}};
  }
  for (const int code : {429, 503}) {
    operation["responses"][absl::StrCat(code)] = {{"$ref", absl::StrCat("#/components/responses/", code)}};
  }
  return operation;
}

}  // namespace

Json OpenApi(const std::string& version) {
  Schemas schemas;
  Json paths = Json::object();
  Json responses = Json::object();
  for (const Route& route : Routes()) {
    paths[route.path][absl::AsciiStrToLower(route.method)] = Operation(route, &schemas);
    for (const int code : Failures(route)) {
      responses[absl::StrCat(code)] = {
          {"description", HttpTitle(code)},
          {"content", Content({"application/problem+json"}, {{"$ref", "#/components/schemas/Problem"}})}};
    }
  }
  for (const PlainRoute& route : PlainRoutes()) paths[route.path]["get"] = PlainOperation(route);
  Json components = Json::object();
  for (const auto& [name, schema] : schemas.All()) components[name] = schema;
  components["Problem"] = ProblemSchema();
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "Tessera"},
            {"version", version},
            {"description", "Trains one model on machines with little memory and slow links."},
            {"license", {{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
          {"servers", {{{"url", "/"}}}},
          {"security", {{{"bearer", Json::array()}}}},
          {"tags",
           {{{"name", "JobService"}},
            {{"name", "PlanService"}},
            {{"name", "NodeService"}},
            {{"name", "Service"}}}},
          {"paths", paths},
          {"components",
           {{"schemas", components},
            {"responses", responses},
            {"securitySchemes", {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace tessera::services
