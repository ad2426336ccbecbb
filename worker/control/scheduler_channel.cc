#include "worker/control/scheduler_channel.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace tessera::worker {
namespace {

constexpr absl::string_view kTls = "https://";

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsCredentials(const std::string& ca_file) {
  std::ifstream in(ca_file, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("the scheduler's CA file '", ca_file, "': can't open"));
  std::stringstream text;
  text << in.rdbuf();
  grpc::SslCredentialsOptions trust;
  trust.pem_root_certs = text.str();
  if (!absl::StrContains(trust.pem_root_certs, "BEGIN CERTIFICATE")) {
    return absl::InvalidArgumentError(
        absl::StrCat("the scheduler's CA file '", ca_file, "' holds no certificate"));
  }
  return grpc::SslCredentials(trust);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenSchedulerChannel(const std::string& address,
                                                                    const std::string& ca_file,
                                                                    grpc::ChannelArguments arguments) {
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // http_proxy is for the web, not for the cluster
  absl::string_view target = address;
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (absl::ConsumePrefix(&target, kTls)) {
    TESSERA_ASSIGN_OR_RETURN(credentials, TlsCredentials(ca_file));
  }
  return grpc::CreateCustomChannel(std::string(target), credentials, arguments);
}

}  // namespace tessera::worker
