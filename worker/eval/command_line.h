// What the sub-commands share: parsing, and errors as text and exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "absl/status/status.h"

namespace tessera::worker {

// Parses, runs, and turns the status, and what LibTorch throws, into the exit code of
// commands.h. The reason is the last line on stderr, as CODE: message.
int RunCommand(CLI::App& app, int argc, char** argv, const std::function<absl::Status()>& body);

}  // namespace tessera::worker
