#include <csignal>
#include <string>
#include <vector>

#include "services/cli/program.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  tessera::cli::Interrupts interrupts;
  const tessera::cli::Environment environment = tessera::cli::ProcessEnvironment(&interrupts);
  return tessera::cli::RunTessera(std::vector<std::string>(argv + 1, argv + argc), environment);
}
