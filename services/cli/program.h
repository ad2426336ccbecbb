// `tessera` without its main: arguments and an environment in, an exit code out.
#pragma once

#include <string>
#include <vector>

#include "services/cli/environment.h"

namespace tessera::cli {

// `arguments` without the program's name.
int RunTessera(const std::vector<std::string>& arguments, const Environment& environment);

// The command lines in the helps of all commands, without the program's name.
std::vector<std::string> HelpExamples(const Environment& environment);

// Whether the arguments are a command's; nothing is done.
bool IsCommandLine(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace tessera::cli
