#include "services/api/audit.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera::services {
namespace {

constexpr size_t kMaxText = 80;

std::string Escaped(const std::string& whole) {
  const std::string text = absl::CHexEscape(whole.substr(0, kMaxText));
  return absl::StrContains(text, ' ') ? absl::StrCat("\"", text, "\"") : text;
}

std::string TextOf(const google::protobuf::Message& message, const char* name) {
  const auto* field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING) return "";
  return Escaped(message.GetReflection()->GetString(message, field));
}

std::string JobOf(const google::protobuf::Message& request) {
  std::string ns = TextOf(request, "namespace");
  std::string name = TextOf(request, "name");
  const auto* job = request.GetDescriptor()->FindFieldByName("training_job");
  if (name.empty() && job != nullptr) {
    const auto& message = request.GetReflection()->GetMessage(request, job);
    name = TextOf(message, "name");
    if (ns.empty()) ns = TextOf(message, "namespace");
  }
  return absl::StrCat(ns.empty() ? "default" : ns, "/", name.empty() ? "-" : name);
}

}  // namespace

bool IsMutating(const std::string& rpc) {
  const size_t dot = rpc.find('.');
  const std::string method = dot == std::string::npos ? rpc : rpc.substr(dot + 1);
  for (const char* reading : {"Get", "List", "Watch", "Explain", "Report"}) {
    if (absl::StartsWith(method, reading)) return false;
  }
  return true;
}

std::string AuditLine(const std::string& protocol, const std::string& rpc,
                      const google::protobuf::Message& request, const std::string& user,
                      const std::string& peer, const absl::Status& status) {
  return absl::StrCat("event=audit protocol=", protocol, " method=", rpc, " job=", JobOf(request),
                      " user=", user.empty() ? "-" : Escaped(user), " peer=", peer.empty() ? "-" : peer,
                      " code=", absl::StatusCodeToString(status.code()));
}

}  // namespace tessera::services
