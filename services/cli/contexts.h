// Named services: where they are, with which token, and whose certificate. Kept in contexts.json below
// $XDG_CONFIG_HOME/tessera or ~/.config/tessera; it holds paths of tokens, never tokens.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "services/cli/endpoint.h"

namespace tessera::cli {

inline constexpr char kLocalContext[] = "local";  // the daemon of this machine; always there

struct Context {
  std::string address;     // https://host:port
  std::string token_file;  // may be empty
  std::string ca_file;     // may be empty: those that the system trusts
};

struct Contexts {
  std::string current = kLocalContext;
  std::map<std::string, Context> by_name;
};

std::string ContextsPath(const Variables& variable);
// None when there is no file.
absl::StatusOr<Contexts> ReadContexts(const std::string& path);
absl::Status WriteContexts(const std::string& path, const Contexts& contexts);

// Fills what `options` and the environment leave open: of the context `name`, else of TESSERA_CONTEXT, else
// the current one. NotFound for a name that is not kept.
absl::Status ApplyContext(const std::string& name, const Variables& variable, ConnectionOptions* options);

}  // namespace tessera::cli
