#include "services/grpc/status.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "proto/tessera/v1/violation.h"
#include "services/api/reason.h"

namespace tessera::services {
namespace {

constexpr size_t kMaxMessage = 2048;
constexpr size_t kMaxDetails = 2560;  // a third more as base64

std::string Cut(const std::string& text) {
  if (text.size() <= kMaxMessage) return text;
  size_t end = kMaxMessage;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string Describe(const spec::Violation& violation) {
  spec::Violation rest = violation;
  rest.path.clear();
  rest.line = 0;
  return spec::ToLine(rest);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = Cut(std::string(status.message()));
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  google::rpc::ErrorInfo info;
  info.set_reason(ReasonOf(status));
  info.set_domain(kErrorDomain);
  google::rpc::BadRequest bad;
  const std::vector<spec::Violation> violations = spec::ViolationsFrom(status);
  size_t shown = 0;
  for (const spec::Violation& violation : violations) {
    auto* entry = bad.add_field_violations();
    entry->set_field(violation.path);
    entry->set_description(Describe(violation));
    if (bad.ByteSizeLong() + info.ByteSizeLong() > kMaxDetails) {
      bad.mutable_field_violations()->RemoveLast();
      break;
    }
    ++shown;
  }
  if (shown < violations.size())
    (*info.mutable_metadata())["omittedViolations"] = absl::StrCat(violations.size() - shown);
  details.add_details()->PackFrom(info);
  if (shown > 0) details.add_details()->PackFrom(bad);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message, details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return result;
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::BadRequest bad;
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&bad)) {
      std::vector<spec::Violation> violations;
      for (const auto& entry : bad.field_violations()) {
        violations.push_back({.path = entry.field(), .message = entry.description()});
      }
      const auto payload = spec::MakeInvalid(violations)
                               .GetPayload(absl::string_view(spec::kViolationsPayload.data(),
                                                             spec::kViolationsPayload.size()));
      if (payload.has_value()) {
        result.SetPayload(absl::string_view(spec::kViolationsPayload.data(), spec::kViolationsPayload.size()),
                          *payload);
      }
    } else if (detail.UnpackTo(&info)) {
      SetReason(&result, info.reason());
    }
  }
  return result;
}

}  // namespace tessera::services
