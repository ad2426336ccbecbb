#include "scheduler/kube/kube_config.h"

#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace tessera::scheduler {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::FailedPreconditionError(absl::StrCat("cannot read ", path));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Text(const YAML::Node& node, const char* key) {
  return node && node[key] && node[key].IsScalar() ? node[key].as<std::string>() : "";
}

// The entry of `list` named `name`, by its part `part`.
YAML::Node Named(const YAML::Node& list, const std::string& name, const char* part) {
  if (!list || !list.IsSequence()) return {};
  for (const YAML::Node& entry : list) {
    if (Text(entry, "name") == name) return entry[part];
  }
  return {};
}

// <key>-data in base64, or the file named by <key>.
absl::StatusOr<std::string> Material(const YAML::Node& node, const std::string& key,
                                     const std::string& folder) {
  if (const std::string data = Text(node, (key + "-data").c_str()); !data.empty()) {
    std::string decoded;
    if (absl::Base64Unescape(data, &decoded)) return decoded;
    return absl::FailedPreconditionError(absl::StrCat("kubeconfig: ", key, "-data is not base64"));
  }
  const std::string path = Text(node, key.c_str());
  if (path.empty()) return std::string();
  return ReadFile((std::filesystem::path(folder) / path).string());
}

absl::Status SetServer(std::string_view url, KubeConfig* config) {
  absl::string_view rest(url.data(), url.size());
  if (!absl::ConsumePrefix(&rest, "https://")) {
    return absl::FailedPreconditionError(
        absl::StrCat("kubeconfig: the server '", rest, "' is not https; tokens are not sent in the clear"));
  }
  rest = rest.substr(0, rest.find('/'));
  const size_t colon = rest.rfind(':');
  if (colon != absl::string_view::npos && rest.find(']', colon) == absl::string_view::npos) {
    config->port = std::string(rest.substr(colon + 1));
    rest = rest.substr(0, colon);
  }
  absl::ConsumePrefix(&rest, "[");
  absl::ConsumeSuffix(&rest, "]");
  config->host = std::string(rest);
  return absl::OkStatus();
}

absl::StatusOr<KubeConfig> InCluster() {
  KubeConfig config;
  const std::string folder = kServiceAccountFolder;
  config.host = Environment("KUBERNETES_SERVICE_HOST");
  config.port = Environment("KUBERNETES_SERVICE_PORT");
  config.token_file = folder + "/token";
  TESSERA_ASSIGN_OR_RETURN(config.ca_pem, ReadFile(folder + "/ca.crt"));
  TESSERA_ASSIGN_OR_RETURN(const std::string ns, ReadFile(folder + "/namespace"));
  config.ns = std::string(absl::StripAsciiWhitespace(ns));
  return config;
}

}  // namespace

absl::StatusOr<KubeConfig> ParseKubeConfig(std::string_view yaml, const std::string& folder) {
  try {
    const YAML::Node root = YAML::Load(std::string(yaml));
    const std::string name = Text(root, "current-context");
    const YAML::Node context = Named(root["contexts"], name, "context");
    if (!context.IsMap()) {
      return absl::FailedPreconditionError(
          absl::StrCat("kubeconfig: has no context '", name, "'; see `kubectl config use-context`"));
    }
    const YAML::Node cluster = Named(root["clusters"], Text(context, "cluster"), "cluster");
    const YAML::Node user = Named(root["users"], Text(context, "user"), "user");
    KubeConfig config;
    TESSERA_RETURN_IF_ERROR(SetServer(Text(cluster, "server"), &config));
    if (Text(cluster, "insecure-skip-tls-verify") == "true") {
      return absl::FailedPreconditionError(
          "kubeconfig: insecure-skip-tls-verify is not supported; set certificate-authority");
    }
    if (user && (user["exec"] || user["auth-provider"])) {
      return absl::FailedPreconditionError(
          "kubeconfig: programs that make credentials are not supported; use a token or a certificate");
    }
    if (const std::string ns = Text(context, "namespace"); !ns.empty()) config.ns = ns;
    TESSERA_ASSIGN_OR_RETURN(config.ca_pem, Material(cluster, "certificate-authority", folder));
    TESSERA_ASSIGN_OR_RETURN(config.client_certificate_pem, Material(user, "client-certificate", folder));
    TESSERA_ASSIGN_OR_RETURN(config.client_key_pem, Material(user, "client-key", folder));
    config.token = Text(user, "token");
    if (const std::string file = Text(user, "tokenFile"); !file.empty()) {
      config.token_file = (std::filesystem::path(folder) / file).string();
    }
    return config;
  } catch (const YAML::Exception& error) {
    return absl::FailedPreconditionError(absl::StrCat("kubeconfig: ", error.what()));
  }
}

absl::StatusOr<KubeConfig> LoadKubeConfig() {
  absl::StatusOr<KubeConfig> config;
  if (!Environment("KUBERNETES_SERVICE_HOST").empty() && Environment("KUBECONFIG").empty()) {
    config = InCluster();
  } else {
    std::string path = Environment("KUBECONFIG");
    if (path.empty()) path = Environment("HOME") + "/.kube/config";
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    config = ParseKubeConfig(text, std::filesystem::path(path).parent_path().string());
  }
  if (!config.ok()) return config;
  if (const std::string ns = Environment("TESSERA_NAMESPACE"); !ns.empty()) config->ns = ns;
  return config;
}

absl::StatusOr<std::string> CurrentToken(const KubeConfig& config) {
  if (config.token_file.empty()) return config.token;
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(config.token_file));
  return std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace tessera::scheduler
