// Starting a program without a shell, in a session of its own.
#pragma once

#include <sys/types.h>

#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::scheduler {

struct ProcessRequest {
  std::vector<std::string> arguments;      // [0] is the program: an absolute path
  std::map<std::string, std::string> env;  // replaces or adds to this process' own
};

// stdin is empty, stdout and stderr are appended to `log_file` (created, mode 0600).
// Inherits no descriptor but these, no blocked signal and no ignored signal; leads a new session,
// so that it ends neither with the terminal nor with this process. NotFound or
// PermissionDenied name the program.
absl::StatusOr<pid_t> StartLogged(const ProcessRequest& request, const std::string& log_file);

struct ProcessOutput {
  int exit_code = 0;  // 128 + n: killed by signal n
  std::string out;
  std::string err;
};

// Runs it to its end with `input` as stdin. DeadlineExceeded after `timeout`, Cancelled soon after a
// stop is requested, ResourceExhausted beyond 64 MB of output; it is then killed with all it started.
absl::StatusOr<ProcessOutput> RunToEnd(const ProcessRequest& request, const std::string& input,
                                       absl::Duration timeout, const std::stop_token& stop = {});

}  // namespace tessera::scheduler
