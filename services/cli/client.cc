#include "services/cli/client.h"

#include <fstream>
#include <sstream>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "services/grpc/status.h"

namespace tessera::cli {

absl::StatusOr<std::unique_ptr<Client>> Client::Make(const Endpoint& endpoint, const std::string& token) {
  std::string address = endpoint.grpc;
  const bool tls = absl::StartsWith(address, "https://");
  if (tls) address = std::string(absl::StripPrefix(address, "https://"));
  if (!tls && !token.empty() && !IsLoopback(address)) {
    return absl::InvalidArgumentError(absl::StrCat("the token in ", endpoint.token_file,
                                                   " is not sent unencrypted to ", address,
                                                   "; use --address https://", address));
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, tls ? 1 : 0);
  grpc::SslCredentialsOptions trust;
  if (!endpoint.ca_file.empty()) {
    std::stringstream text;
    text << std::ifstream(endpoint.ca_file).rdbuf();
    trust.pem_root_certs = text.str();
    if (!absl::StrContains(trust.pem_root_certs, "BEGIN CERTIFICATE")) {
      return absl::InvalidArgumentError(
          absl::StrCat("the CA file ", endpoint.ca_file, " holds no certificate"));
    }
  }
  const auto credentials = tls ? grpc::SslCredentials(trust) : grpc::InsecureChannelCredentials();
  return absl::WrapUnique(
      new Client(endpoint, token, grpc::CreateCustomChannel(address, credentials, arguments)));
}

Client::Client(const Endpoint& endpoint, const std::string& token,
               const std::shared_ptr<grpc::Channel>& channel)
    : endpoint_(endpoint),
      token_(token),
      jobs_(v1::JobService::NewStub(channel)),
      plans_(v1::PlanService::NewStub(channel)),
      nodes_(v1::NodeService::NewStub(channel)) {}

void Client::Prepare(grpc::ClientContext* context) const {
  if (!token_.empty()) context->AddMetadata("authorization", absl::StrCat("Bearer ", token_));
}

absl::Status Client::FromGrpc(const grpc::Status& status) const {
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    return absl::UnauthenticatedError(endpoint_.token_file.empty()
                                          ? absl::StrCat("the service at ", endpoint_.grpc,
                                                         " wants a token; name its file with --token-file")
                                          : absl::StrCat("the service at ", endpoint_.grpc,
                                                         " refuses the token in ", endpoint_.token_file, ": ",
                                                         status.error_message()));
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(
        absl::StrCat("no answer from the service at ", endpoint_.grpc, ": ", status.error_message()));
  }
  return services::FromGrpcStatus(status);
}

}  // namespace tessera::cli
