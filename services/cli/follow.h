// Watches a job to its end, showing it, through Ctrl-C and lost connections.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/cli/session.h"

namespace tessera::cli {

struct FollowOptions {
  bool suspend_on_interrupt = false;  // first Ctrl-C suspends the job; else it leaves
  bool restart_daemon = false;        // in local mode, when it died
  bool was_suspended = false;         // it was just resumed: SUSPENDED is not yet news
  absl::Duration redraw = absl::Milliseconds(250);
  absl::Duration patience = absl::Minutes(2);  // of reconnecting without success
};

struct FollowResult {
  int exit_code = kFailed;
  v1::TrainingJob job;  // as last seen
  bool ended = false;   // terminal or suspended, rather than left
};

// `client` is the session's and is replaced when the connection is made again.
FollowResult Follow(Session& session, Client* client, const std::string& name, const FollowOptions& options);

}  // namespace tessera::cli
