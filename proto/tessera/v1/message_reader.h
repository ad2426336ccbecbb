// From a Tree to a message, by reflection.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "proto/tessera/v1/text_tree.h"
#include "proto/tessera/v1/violation.h"

namespace tessera::spec {

// Fills `message` (cleared by the caller) from a mapping; reports every fault and
// goes on. `path` prefixes the paths of violations.
void ReadMessage(const Tree& tree, const std::string& path, google::protobuf::Message* message,
                 std::vector<Violation>* violations);

}  // namespace tessera::spec
