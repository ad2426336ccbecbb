// The OpenAPI 3.1 document of the HTTP door, made from the route table and the proto descriptors; what the
// comments of the .proto files say becomes its descriptions.
#pragma once

#include <string>

#include "nlohmann/json.hpp"

namespace tessera::services {

nlohmann::ordered_json OpenApi(const std::string& version);

}  // namespace tessera::services
