#include "services/cli/contexts.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace tessera::cli {

namespace fs = std::filesystem;

std::string ContextsPath(const Variables& variable) {
  const auto config = variable("XDG_CONFIG_HOME");
  const std::string root =
      config && !config->empty() ? *config : variable("HOME").value_or("/tmp") + "/.config";
  return root + "/tessera/contexts.json";
}

absl::StatusOr<Contexts> ReadContexts(const std::string& path) {
  Contexts contexts;
  std::ifstream file(path);
  if (!file) return contexts;
  try {
    const auto json = nlohmann::json::parse(file);
    contexts.current = json.value("current", std::string(kLocalContext));
    for (const auto& [name, item] : json.at("contexts").items()) {
      contexts.by_name[name] = {item.at("address"), item.value("tokenFile", std::string()),
                                item.value("caFile", std::string())};
    }
  } catch (const nlohmann::json::exception&) {
    return absl::DataLossError(absl::StrCat(path, " can't be read; mend it or remove it"));
  }
  return contexts;
}

absl::Status WriteContexts(const std::string& path, const Contexts& contexts) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const auto& [name, context] : contexts.by_name) {
    nlohmann::ordered_json& item = all[name] = {{"address", context.address}};
    if (!context.token_file.empty()) item["tokenFile"] = context.token_file;
    if (!context.ca_file.empty()) item["caFile"] = context.ca_file;
  }
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  const std::string next = path + ".new";
  std::ofstream file(next, std::ios::trunc);
  file << nlohmann::ordered_json{{"current", contexts.current}, {"contexts", all}}.dump(2) << "\n"
       << std::flush;
  if (file) fs::rename(next, path, error);
  if (!file || error) return absl::FailedPreconditionError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::Status ApplyContext(const std::string& name, const Variables& variable, ConnectionOptions* options) {
  const bool placed = !options->address.empty() || !variable("TESSERA_ADDRESS").value_or("").empty();
  if (placed && name.empty()) return absl::OkStatus();
  const std::string path = ContextsPath(variable);
  TESSERA_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(path));
  std::string chosen = name.empty() ? variable("TESSERA_CONTEXT").value_or("") : name;
  if (chosen.empty()) chosen = contexts.current;
  if (chosen == kLocalContext) return absl::OkStatus();
  const auto found = contexts.by_name.find(chosen);
  if (found == contexts.by_name.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no context '", chosen, "' in ", path, "; 'tessera context list' shows them"));
  }
  if (options->address.empty()) options->address = found->second.address;
  if (options->token_file.empty()) options->token_file = found->second.token_file;
  if (options->ca_file.empty()) options->ca_file = found->second.ca_file;
  return absl::OkStatus();
}

}  // namespace tessera::cli
