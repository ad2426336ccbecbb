// A machine-readable word beside a status code, for ErrorInfo and problem documents.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace tessera::services {

inline constexpr char kReasonPayload[] = "tessera.dev/reason";
inline constexpr char kReasonRequestIdReused[] = "REQUEST_ID_REUSED";
inline constexpr char kErrorDomain[] = "tessera.dev";

inline void SetReason(absl::Status* status, const std::string& reason) {
  status->SetPayload(kReasonPayload, absl::Cord(reason));
}

// "INVALID_ARGUMENT" where no better word was set.
inline std::string ReasonOf(const absl::Status& status) {
  const auto reason = status.GetPayload(kReasonPayload);
  return reason.has_value() ? std::string(*reason) : absl::StatusCodeToString(status.code());
}

}  // namespace tessera::services
