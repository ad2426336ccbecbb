// absl::Status <-> grpc::Status. Codes map one to one; violations travel as
// google.rpc.BadRequest, the reason as google.rpc.ErrorInfo.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tessera::services {

// Trailers are small (8 KiB by default on the client): message and details are cut, and
// say how many violations were left out.
grpc::Status ToGrpcStatus(const absl::Status& status);

// With the violations (path and text; spec::ViolationsFrom) and the reason that were sent.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace tessera::services
