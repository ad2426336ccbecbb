// Where the service is and the token it wants.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::cli {

struct Endpoint {
  std::string grpc;        // "127.0.0.1:41234", or "https://host:port" with TLS
  std::string rest;        // "http://127.0.0.1:41235"; empty: unknown
  std::string token_file;  // empty: none
  std::string ca_file;     // with https: whom to trust; empty: whom the system trusts
  int64_t pid = 0;         // of a daemon on this machine; 0: unknown
  bool local = false;      // from a state directory: the daemon can be started again
};

struct ConnectionOptions {
  std::string address;          // --address
  std::string token_file;       // --token-file
  std::string ca_file;          // --ca
  std::string state_directory;  // resolved, see DefaultStateDirectory
};

using Variables = std::function<std::optional<std::string>(const std::string&)>;

// TESSERA_STATE_DIR, else tessera below XDG_STATE_HOME or ~/.local/state.
std::string DefaultStateDirectory(const Variables& variable);

// What a daemon wrote to <state_directory>/endpoint.json. NotFound: there is none.
absl::StatusOr<Endpoint> ReadEndpoint(const std::string& state_directory);

// Options, else TESSERA_ADDRESS, TESSERA_TOKEN_FILE and TESSERA_CA, else the state directory.
absl::StatusOr<Endpoint> ResolveEndpoint(const ConnectionOptions& options, const Variables& variable);

// The token; empty if `endpoint` names no file. Errors name the file.
absl::StatusOr<std::string> ReadToken(const Endpoint& endpoint);

// Whether a token may be sent to `address` without TLS.
bool IsLoopback(const std::string& address);

}  // namespace tessera::cli
