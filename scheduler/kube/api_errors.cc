// What answers mean, and collections by pages.
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "scheduler/kube/api_client.h"

namespace tessera::scheduler {

using Json = nlohmann::json;

std::string QueryEscape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isalnum(c) || absl::StrContains("-_.~", absl::string_view(&c, 1))) {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return out;
}

absl::Status StatusOfAnswer(int http_status, const std::string& body) {
  if (http_status >= 200 && http_status < 300) return absl::OkStatus();
  const Json status = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  std::string message = absl::StrCat("the Kubernetes API server answered ", http_status);
  std::string reason;
  if (status.is_object()) {
    const std::string said = status.value("message", "");
    if (!said.empty()) message = said;
    reason = status.value("reason", "");
  }
  switch (http_status) {
    case 400:
    case 422:
      return absl::InvalidArgumentError(message);
    case 401:
      return absl::UnauthenticatedError(message);
    case 403:
      return absl::PermissionDeniedError(message);
    case 404:
      return absl::NotFoundError(message);
    case 409:
      return reason == "AlreadyExists" ? absl::AlreadyExistsError(message) : absl::AbortedError(message);
    case 410:
      return absl::OutOfRangeError(message);
    default:
      return absl::UnavailableError(message);
  }
}

std::string NameOf(const Json& object) { return object["metadata"].value("name", ""); }

std::string ResourceVersionOf(const Json& object) { return object["metadata"].value("resourceVersion", ""); }

absl::StatusOr<ObjectList> ListAll(ApiClient& client, const std::string& path, int page_size) {
  ObjectList list;
  std::string next;
  do {
    std::string page = absl::StrCat(path, absl::StrContains(path, "?") ? "&" : "?", "limit=", page_size);
    if (!next.empty()) absl::StrAppend(&page, "&continue=", QueryEscape(next));
    TESSERA_ASSIGN_OR_RETURN(Json answer, client.Get(page));
    if (!answer.contains("items") || !answer["items"].is_array()) {
      return absl::InternalError(absl::StrCat(path, " is no collection"));
    }
    for (Json& item : answer["items"]) list.items.push_back(std::move(item));
    const Json metadata = answer.value("metadata", Json::object());
    list.resource_version = metadata.value("resourceVersion", "");
    next = metadata.value("continue", "");
  } while (!next.empty());
  return list;
}

}  // namespace tessera::scheduler
