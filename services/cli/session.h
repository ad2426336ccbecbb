// What the commands of one run of the program share: global options, the connection,
// and how results and errors are shown.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "services/cli/client.h"
#include "services/cli/endpoint.h"
#include "services/cli/environment.h"
#include "services/cli/exit_code.h"

namespace tessera::cli {

struct Session {
  explicit Session(const Environment& environment) : environment(environment) {}

  const Environment& environment;
  ConnectionOptions connection;
  std::string ns = "default";
  std::string output = "table";  // table, json, yaml, name
  bool no_color = false;
  std::string context;          // --context
  std::function<int()> action;  // of the command that was chosen; returns the exit code

  Style style() const;
  // Whether the service is a daemon of this machine that may be started.
  bool local() const;

  // The service; does not start one. The client lives as long as the session.
  absl::StatusOr<Client*> Connect();
  // The service; in local mode a daemon is started if none runs, and that is said.
  absl::StatusOr<Client*> ConnectOrStart();

  // Shows `status` and names the exit code that goes with it.
  int Fail(const absl::Status& status) const;
  void Say(const std::string& line) const;
  // -o json or -o yaml: standard output is for programs, and what is for people goes beside it.
  bool Structured() const { return output == "json" || output == "yaml"; }
  // -o json and -o yaml. False for the other formats: the caller shows a table.
  bool PrintMessage(const google::protobuf::Message& message) const;
  bool PrintJson(const nlohmann::ordered_json& value) const;
  // A table; with -o json and -o yaml a list of objects whose keys are the headers, with -o name the column
  // "name". Returns kSucceeded.
  int PrintRows(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows) const;

 private:
  std::unique_ptr<Client> client_;
};

// What Fail writes: the message, one line per violation, and what to do where that is known.
std::string ErrorText(const absl::Status& status);
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace tessera::cli
