// What is wrong with a message that somebody wrote, one entry per fault, and how
// such a list travels inside an absl::Status to the doors of the service.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tessera::spec {

struct Violation {
  std::string path;            // "spec.workers.batch"; empty: the whole text
  std::string value;           // as found; empty: nothing was there
  std::string message;         // "must be at least 1"
  std::string remedy;          // "use 1 or more"; may be empty
  int line = 0;                // of the text, from 1; 0 = unknown
  bool unimplemented = false;  // right, but this version cannot do it
  friend bool operator==(const Violation&, const Violation&) = default;
};

// Type URL of the payload: a JSON array of {path, value, message, remedy, line}.
inline constexpr std::string_view kViolationsPayload = "tessera.dev/violations";

// "spec.workers.batch (line 7): must be at least 1, found 0; use 1 or more"
std::string ToLine(const Violation& violation);

// Ok when the list is empty. Unimplemented when every entry is of that kind, else
// InvalidArgument. The message has one line per violation.
absl::Status MakeInvalid(const std::vector<Violation>& violations);

// The list inside `status`; empty when it carries none.
std::vector<Violation> ViolationsFrom(const absl::Status& status);

}  // namespace tessera::spec
