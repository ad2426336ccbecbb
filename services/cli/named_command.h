// Parts of several commands: one that takes the name of a job and nothing else, and a check of counts.
#pragma once

#include <string>

#include "CLI/App.hpp"
#include "services/cli/session.h"

namespace tessera::cli {

// Adds `name` with `what` and `footer` as its help. `run` gets the job's name and returns the exit code.
void AddNamedCommand(CLI::App& app, Session& session, const char* name, const char* what, const char* footer,
                     int (*run)(Session&, const std::string&));

// Of an option that counts something: refuses what is no whole number from 1.
CLI::Validator AtLeastOne();

}  // namespace tessera::cli
