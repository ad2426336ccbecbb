// Each adds a group of commands to the program; a chosen command sets session.action.
#pragma once

#include "CLI/App.hpp"
#include "services/cli/session.h"

namespace tessera::cli {

void AddTrainCommand(CLI::App& app, Session& session);
void AddSubmitCommands(CLI::App& app, Session& session);  // submit, validate
void AddPlanCommands(CLI::App& app, Session& session);    // plan, plan diff
void AddBudgetCommands(CLI::App& app, Session& session);  // budgets
void AddJobCommands(CLI::App& app, Session& session);     // get, list, watch, explain
void AddLifecycleCommands(CLI::App& app,
                          Session& session);  // cancel, suspend, resume, resize, update, retry, delete
void AddRecordCommands(CLI::App& app, Session& session);     // logs, events, checkpoints
void AddNodeCommands(CLI::App& app, Session& session);       // nodes, links
void AddDaemonCommands(CLI::App& app, Session& session);     // daemon start, stop, status
void AddWorkerCommands(CLI::App& app, Session& session);     // data, eval, generate, export
void AddContextCommands(CLI::App& app, Session& session);    // context, certs
void AddMachineCommands(CLI::App& app, Session& session);    // init, doctor
void AddCompletionCommand(CLI::App& app, Session& session);  // completion, version

}  // namespace tessera::cli
