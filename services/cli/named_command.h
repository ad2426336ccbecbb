// A command that takes the name of one job and nothing else.
#pragma once

#include <string>

#include "CLI/App.hpp"
#include "services/cli/session.h"

namespace tessera::cli {

// Adds `name` with `what` and `footer` as its help. `run` gets the job's name and returns the exit code.
void AddNamedCommand(CLI::App& app, Session& session, const char* name, const char* what, const char* footer,
                     int (*run)(Session&, const std::string&));

}  // namespace tessera::cli
