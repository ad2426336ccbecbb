// The scheduler of this machine as a process: started, found and ended by its
// state directory.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/cli/client.h"
#include "services/cli/endpoint.h"

namespace tessera::cli {

struct DaemonOptions {
  std::string program;                 // path of tesserad
  std::string state_directory;         // created if it is missing
  std::vector<std::string> arguments;  // further ones, e.g. {"--rest-port", "8080"}
  absl::Duration patience = absl::Seconds(30);
};

// Whether the process that `endpoint` names is alive.
bool DaemonAlive(const Endpoint& endpoint);

// A client of the running daemon, which answered with its token. NotFound: none runs.
absl::StatusOr<std::unique_ptr<Client>> ConnectToDaemon(const std::string& state_directory);

struct StartedDaemon {
  std::unique_ptr<Client> client;
  bool started = false;  // false: it ran already
};

// Starts a daemon unless one runs: in a session of its own, its output in
// <state_directory>/tesserad.log, and waits until it answers. Of several callers at
// once one starts it. The error of one that did not come up ends in its last log lines.
absl::StatusOr<StartedDaemon> EnsureDaemon(const DaemonOptions& options);

// Asks the daemon to end and waits until it has. Workers go on. NotFound: none runs.
absl::Status StopDaemon(const std::string& state_directory, absl::Duration patience);

// The last `lines` lines of a file; empty if it cannot be read.
std::vector<std::string> LastLines(const std::string& path, int lines);

}  // namespace tessera::cli
