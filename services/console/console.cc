#include "services/console/console.h"

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/embedded_file.h"

namespace tessera {
absl::Span<const EmbeddedFile> ConsoleFiles();
}

namespace tessera::services {
namespace {

const char* TypeOf(absl::string_view name) {
  if (absl::EndsWith(name, ".js")) return "text/javascript; charset=utf-8";
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".svg")) return "image/svg+xml";
  if (absl::EndsWith(name, ".txt")) return "text/plain; charset=utf-8";
  return "text/html; charset=utf-8";
}

}  // namespace

ConsoleFile FindConsoleFile(std::string_view path) {
  absl::string_view name(path.data(), path.size());
  if (name == "/") {
    name = "index.html";
  } else if (!absl::ConsumePrefix(&name, "/console/")) {
    return {};
  }
  for (const EmbeddedFile& file : ConsoleFiles()) {
    if (absl::string_view(file.name.data(), file.name.size()) == name) return {file.content, TypeOf(name)};
  }
  return {};
}

}  // namespace tessera::services
