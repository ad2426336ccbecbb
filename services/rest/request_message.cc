#include "services/rest/request_message.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/job_codec.h"
#include "services/api/dispatch.h"

namespace tessera::services {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const FieldDescriptor* FindField(const Message& message, const std::string& name) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->name() == name || field->json_name() == name) return field;
  }
  return nullptr;
}

// Query values are text; the codec wants booleans as such. A bare "?validateOnly" is true.
nlohmann::json AsJson(const FieldDescriptor* field, const std::string& text) {
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_BOOL) return text;
  if (text.empty() || text == "true") return true;
  if (text == "false") return false;
  return text;
}

absl::Status ReadQuery(std::string_view query, const RouteMatch& match, Message* message) {
  std::vector<spec::Violation> violations;
  nlohmann::json object = nlohmann::json::object();
  for (const absl::string_view pair :
       absl::StrSplit(absl::string_view(query.data(), query.size()), '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const auto name = PercentDecode({parts.first.data(), parts.first.size()}, true);
    const auto value = PercentDecode({parts.second.data(), parts.second.size()}, true);
    if (!name.has_value() || !value.has_value()) {
      return spec::MakeInvalid({{.path = "query", .message = "has a broken % escape"}});
    }
    const FieldDescriptor* field = FindField(*message, *name);
    const bool scalar = field != nullptr && !field->is_repeated() &&
                        (field->message_type() == nullptr ||
                         field->message_type()->full_name() == "google.protobuf.FieldMask");
    if (!scalar) {
      violations.push_back({.path = *name, .message = "is not a query parameter of this path"});
    } else if (match.variables.count(field->name()) > 0) {
      violations.push_back(
          {.path = *name, .message = "is given by the path", .remedy = "remove it from the query"});
    } else if (object.contains(field->json_name())) {
      violations.push_back({.path = *name, .message = "is given twice", .remedy = "keep one"});
    } else {
      object[field->json_name()] = AsJson(field, *value);
    }
  }
  for (const auto& [variable, value] : match.variables) {
    if (const FieldDescriptor* field = FindField(*message, variable)) object[field->json_name()] = value;
  }
  if (!violations.empty()) return spec::MakeInvalid(violations);
  return spec::ParseMessage(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), message);
}

absl::Status ReadBody(const Route& route, const HttpRequest& http, Message* message) {
  const bool blank = http.body.find_first_not_of(" \t\r\n") == std::string::npos;
  const absl::string_view body = route.body;
  if (body.empty()) {
    return blank ? absl::OkStatus() : absl::InvalidArgumentError("this path takes no body; send none");
  }
  if (body == "*") {
    if (blank) return absl::OkStatus();
    std::unique_ptr<Message> sent(message->New());
    TESSERA_RETURN_IF_ERROR(spec::ParseMessage(http.body, sent.get()));
    sent->MergeFrom(*message);  // the path has the last word
    message->CopyFrom(*sent);
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const v1::TrainingJob job, spec::ParseJob(http.body));
  const FieldDescriptor* field = FindField(*message, std::string(body));
  message->GetReflection()->MutableMessage(message, field)->CopyFrom(job);
  return absl::OkStatus();
}

absl::Status ReadHeaders(const Route& route, const HttpRequest& http, Message* message) {
  const FieldDescriptor* request_id = FindField(*message, "request_id");
  const std::string key = http.Header("idempotency-key");
  if (request_id != nullptr && !key.empty()) {
    const std::string given = message->GetReflection()->GetString(*message, request_id);
    if (!given.empty() && given != key) {
      return spec::MakeInvalid({{.path = "requestId",
                                 .message = "differs from the Idempotency-Key header",
                                 .remedy = "send one of them"}});
    }
    message->GetReflection()->SetString(message, request_id, key);
  }
  const FieldDescriptor* etag = FindField(*message, "etag");
  const std::string wanted = http.Header("if-match");
  if (etag != nullptr && !wanted.empty() && wanted != "*") {
    const std::string bare(absl::StripSuffix(absl::StripPrefix(wanted, "\""), "\""));
    const std::string given = message->GetReflection()->GetString(*message, etag);
    if (!given.empty() && given != bare) {
      return spec::MakeInvalid(
          {{.path = "etag", .message = "differs from the If-Match header", .remedy = "send one of them"}});
    }
    message->GetReflection()->SetString(message, etag, bare);
  }
  const std::string last = http.Header("last-event-id");
  if (route.stream && !last.empty()) {
    int64_t revision = 0;
    if (!absl::SimpleAtoi(last, &revision)) {
      return spec::MakeInvalid({{.path = "Last-Event-ID",
                                 .value = absl::StrCat("\"", last.substr(0, 40), "\""),
                                 .message = "must be the id of an event of this stream"}});
    }
    message->GetReflection()->SetInt64(message, FindField(*message, "from_revision"), revision);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Message>> BuildRequest(const RouteMatch& match, std::string_view query,
                                                      const HttpRequest& http) {
  std::unique_ptr<Message> message = NewRequest(match.route->rpc);
  if (message == nullptr) return absl::InternalError(absl::StrCat("no rpc ", match.route->rpc));
  TESSERA_RETURN_IF_ERROR(ReadQuery(query, match, message.get()));
  TESSERA_RETURN_IF_ERROR(ReadHeaders(*match.route, http, message.get()));
  TESSERA_RETURN_IF_ERROR(ReadBody(*match.route, http, message.get()));
  return message;
}

}  // namespace tessera::services
