// Where the API server is and how this program proves who it is.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::scheduler {

struct KubeConfig {
  std::string host;
  std::string port = "443";
  std::string ns = "default";
  std::string ca_pem;      // the server's certificate must be signed by one of these
  std::string token_file;  // read again for each request: tokens are rotated
  std::string token;
  std::string client_certificate_pem;
  std::string client_key_pem;
};

inline constexpr char kServiceAccountFolder[] = "/var/run/secrets/kubernetes.io/serviceaccount";

// In a pod its service account; elsewhere $KUBECONFIG, else ~/.kube/config. $TESSERA_NAMESPACE, if set, is
// the namespace. FailedPrecondition says what is missing.
absl::StatusOr<KubeConfig> LoadKubeConfig();

// The current context of a kubeconfig. Relative file names are relative to `folder`. Programs that make
// credentials (exec) are refused, as is a server that is not https.
absl::StatusOr<KubeConfig> ParseKubeConfig(std::string_view yaml, const std::string& folder);

// The token to send now; empty: none.
absl::StatusOr<std::string> CurrentToken(const KubeConfig& config);

}  // namespace tessera::scheduler
