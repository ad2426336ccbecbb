// Unary calls by name, for doors that do not have generated stubs.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "services/api/api.h"

namespace tessera::services {

// An empty request of `rpc` ("JobService.GetTrainingJob"); null for an unknown name.
std::unique_ptr<google::protobuf::Message> NewRequest(const std::string& rpc);

// Calls the handler. `request` is of the rpc's type. Unimplemented for unknown and
// streaming rpcs.
absl::StatusOr<std::unique_ptr<google::protobuf::Message>> Dispatch(Api* api, const std::string& rpc,
                                                                    const google::protobuf::Message& request);

}  // namespace tessera::services
