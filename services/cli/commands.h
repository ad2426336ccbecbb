// Each adds a group of commands to the program; a chosen command sets session.action.
#pragma once

#include "CLI/App.hpp"
#include "services/cli/session.h"

namespace tessera::cli {

void AddTrainCommand(CLI::App& app, Session& session);
void AddSubmitCommands(CLI::App& app, Session& session);     // submit, validate, plan
void AddJobCommands(CLI::App& app, Session& session);        // get, list, watch, explain
void AddLifecycleCommands(CLI::App& app, Session& session);  // cancel, suspend, resume, delete
void AddRecordCommands(CLI::App& app, Session& session);     // logs, events, nodes
void AddDaemonCommands(CLI::App& app, Session& session);     // daemon start, stop, status
void AddWorkerCommands(CLI::App& app, Session& session);     // data, eval, generate, export
void AddCompletionCommand(CLI::App& app, Session& session);  // completion, version

}  // namespace tessera::cli
