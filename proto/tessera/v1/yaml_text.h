#pragma once

#include <string>

#include "nlohmann/json.hpp"

namespace tessera::spec {

// Plain YAML of any value, as ToYaml writes messages; ends in a newline.
std::string YamlText(const nlohmann::ordered_json& value);

}  // namespace tessera::spec
