#include "worker/control/endpoint.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace tessera::worker {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": can't open"));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

absl::StatusOr<std::string> ResolveScheduler(const std::string& scheduler) {
  absl::string_view path = scheduler;
  if (!absl::ConsumePrefix(&path, "file:")) return scheduler;
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(std::string(path)));
  const auto root = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("grpc") || !root["grpc"].is_string()) {
    return absl::DataLossError(absl::StrCat(path, ": holds no JSON object with a text \"grpc\""));
  }
  return root["grpc"].get<std::string>();
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  if (path.empty()) return std::string();
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return std::string(absl::StripAsciiWhitespace(text));
}

bool IsLoopback(const std::string& address) {
  return absl::StartsWith(address, "127.") || absl::StartsWith(address, "localhost:") ||
         absl::StartsWith(address, "[::1]");
}

}  // namespace tessera::worker
