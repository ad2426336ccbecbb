// From path, query, headers and body to the rpc's request message.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "services/api/route.h"
#include "services/rest/http.h"

namespace tessera::services {

// InvalidArgument with violations named as in the query or body. `query` is what follows
// the "?" of the target.
absl::StatusOr<std::unique_ptr<google::protobuf::Message>> BuildRequest(const RouteMatch& match,
                                                                        std::string_view query,
                                                                        const HttpRequest& http);

}  // namespace tessera::services
