// The gRPC channel to the scheduler.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::worker {

// To `address`, as ResolveScheduler gives it: "host:port" is plain. "https://host:port" has TLS, with a
// certificate of that host by an authority in `ca_file` (PEM, read now); NotFound or InvalidArgument names
// the file that has none.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenSchedulerChannel(const std::string& address,
                                                                    const std::string& ca_file,
                                                                    grpc::ChannelArguments arguments);

}  // namespace tessera::worker
