// A job file to begin with.
#pragma once

#include <string>

namespace tessera::cli {

// YAML with comments, for a preset; valid once its data paths exist.
std::string InitTemplate(const std::string& name, const std::string& preset);

}  // namespace tessera::cli
