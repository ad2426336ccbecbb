#include "services/cli/endpoint.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    const std::string why = errno != 0 ? std::strerror(errno) : "it is empty";
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
    return absl::PermissionDeniedError(absl::StrCat("cannot read ", path, ": ", why));
  }
  return text.str();
}

std::string FirstOf(const std::string& option, const Variables& variable, const char* name) {
  return option.empty() ? variable(name).value_or("") : option;
}

}  // namespace

std::string DefaultStateDirectory(const Variables& variable) {
  if (const auto directory = variable("TESSERA_STATE_DIR"); directory && !directory->empty())
    return *directory;
  if (const auto state = variable("XDG_STATE_HOME"); state && !state->empty()) return *state + "/tessera";
  return variable("HOME").value_or("/tmp") + "/.local/state/tessera";
}

absl::StatusOr<Endpoint> ReadEndpoint(const std::string& state_directory) {
  const std::string path = (fs::path(state_directory) / "endpoint.json").string();
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("grpc") || !json["grpc"].is_string()) {
    return absl::DataLossError(absl::StrCat(path,
                                            " does not say where the daemon is; 'tessera daemon stop' and ",
                                            "'tessera daemon start' write it anew"));
  }
  Endpoint endpoint;
  endpoint.local = true;
  endpoint.grpc = json["grpc"];
  if (json.contains("rest") && json["rest"].is_string()) endpoint.rest = json["rest"];
  if (json.contains("pid") && json["pid"].is_number_integer()) endpoint.pid = json["pid"];
  if (json.contains("tokenFile") && json["tokenFile"].is_string()) endpoint.token_file = json["tokenFile"];
  if (!endpoint.rest.empty() && !absl::StrContains(endpoint.rest, "://"))
    endpoint.rest = "http://" + endpoint.rest;
  return endpoint;
}

absl::StatusOr<Endpoint> ResolveEndpoint(const ConnectionOptions& options, const Variables& variable) {
  const std::string address = FirstOf(options.address, variable, "TESSERA_ADDRESS");
  const std::string token_file = FirstOf(options.token_file, variable, "TESSERA_TOKEN_FILE");
  Endpoint endpoint;
  if (address.empty()) {
    TESSERA_ASSIGN_OR_RETURN(endpoint, ReadEndpoint(options.state_directory));
  } else {
    endpoint.grpc = address;
  }
  if (!token_file.empty()) endpoint.token_file = token_file;
  endpoint.ca_file = FirstOf(options.ca_file, variable, "TESSERA_CA");
  return endpoint;
}

absl::StatusOr<std::string> ReadToken(const Endpoint& endpoint) {
  if (endpoint.token_file.empty()) return "";
  const absl::StatusOr<std::string> text = ReadFile(endpoint.token_file);
  if (!text.ok()) return absl::UnauthenticatedError(absl::StrCat("token file: ", text.status().message()));
  std::string token(absl::StripAsciiWhitespace(*text));
  if (token.empty()) {
    return absl::UnauthenticatedError(absl::StrCat("token file: ", endpoint.token_file, " is empty"));
  }
  return token;
}

bool IsLoopback(const std::string& address) {
  for (const char* prefix : {"127.", "localhost:", "[::1]:", "unix:"}) {
    if (absl::StartsWith(address, prefix)) return true;
  }
  return false;
}

}  // namespace tessera::cli
