// tessera-worker: trains under a launcher; sub-commands work without a scheduler.
#include <spdlog/spdlog.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "worker/control/termination.h"
#include "worker/device/gpus_command.h"
#include "worker/eval/commands.h"
#include "worker/training_run.h"

namespace tessera::worker {
namespace {

struct Command {
  std::string_view name;
  int (*run)(int argc, char** argv);
  const char* help;
};

constexpr Command kCommands[] = {
    {"prepare", RunPrepare, "text to token shards and a tokenizer"},
    {"info", RunInfo, "what a data set holds, and whether it is whole"},
    {"describe", RunDescribe, "a job's model: shape and measured activations"},
    {"eval", RunEval, "loss and accuracy of a model or checkpoint"},
    {"generate", RunGenerate, "continue a text with an exported model"},
    {"export", RunExport, "assemble a checkpoint in the Hugging Face layout"},
    {"gpus", RunGpus, "which GPUs it can compute on, or why on none"},
};

TrainerSignals signals;

int Train() {
  InstallTerminationHandler(&signals);
  std::signal(SIGINT, SIG_IGN);  // a terminal's Ctrl-C is for the command line, which asks the scheduler
  std::signal(SIGPIPE, SIG_IGN);
  spdlog::set_pattern("time=%Y-%m-%dT%H:%M:%S.%e level=%l %v");
  spdlog::flush_on(spdlog::level::info);  // the log is a file, and the last words before a crash matter
  const auto environment =
      ReadLaunchEnvironment([](const char* name) -> const char* { return std::getenv(name); });
  if (!environment.ok()) {
    std::fprintf(stderr, "tessera-worker: %s\n", std::string(environment.status().message()).c_str());
    return kExitUsage;
  }
  return RunUnderLauncher(*environment, &signals);
}

int Help(std::FILE* out, int code) {
  std::fprintf(out,
               "usage: tessera-worker [command] [options]\n\n  train      (or nothing) train as a "
               "scheduler's worker\n");
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-10s %s\n", std::string(command.name).c_str(), command.help);
  }
  std::fprintf(out, "\n'tessera-worker COMMAND --help' tells its options.\n");
  return code;
}

int Run(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "train";
  if (name == "train") return Train();
  if (name == "--help" || name == "-h" || name == "help") return Help(stdout, 0);
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(argc - 1, argv + 1);
  }
  std::fprintf(stderr, "tessera-worker: unknown command '%s'\n", argv[1]);
  return Help(stderr, kExitUsage);
}

}  // namespace
}  // namespace tessera::worker

int main(int argc, char** argv) { return tessera::worker::Run(argc, argv); }
