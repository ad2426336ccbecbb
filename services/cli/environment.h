// What the program takes from the world outside: arguments in tests.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "services/cli/interrupts.h"
#include "services/cli/table.h"

namespace tessera::cli {

struct Environment {
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  bool terminal = false;        // `out` is one
  Style style;                  // of `out`
  std::function<int()> width;   // columns of `out` now; read at each drawing
  std::function<int()> height;  // rows
  std::function<std::optional<std::string>(const std::string&)> variable;
  std::string program_directory;  // where tesserad and tessera-worker are looked for first
  std::string working_directory;
  Interrupts* interrupts = nullptr;
  // From now on Ctrl-C is counted by `interrupts` and no longer ends the program.
  std::function<void()> catch_interrupts = [] {};
  // Becomes another program; returns (an exit code) only in tests or when that failed.
  std::function<int(const std::string& path, const std::vector<std::string>& arguments)> execute;
  // Runs a program to its end with `out` as its output; its exit code, or -1.
  std::function<int(const std::string& path, const std::vector<std::string>& arguments)> run;
};

// `program` beside this one, else in PATH; empty if it is in neither.
std::string FindProgram(const Environment& environment, const std::string& program);

// The process' own environment. `interrupts` outlives it.
Environment ProcessEnvironment(Interrupts* interrupts);

}  // namespace tessera::cli
