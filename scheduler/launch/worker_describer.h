// Asks the worker program what a model looks like and costs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/launch/launcher.h"

namespace tessera::scheduler {

struct WorkerDescriberOptions {
  std::string worker_program;                         // "": see worker_program.h
  std::vector<std::string> arguments = {"describe"};  // after the program
  std::string cache_directory;                        // "": no cache
  absl::Duration timeout = absl::Minutes(2);
};

// Runs `tessera-worker describe --spec -` with the resolved TrainingJobSpec as JSON on stdin;
// it answers a v1::ModelShape as JSON on stdout. An error is its last line on stderr, with the
// absl code that line begins with ("NOT_FOUND: ..."), else InvalidArgument for exit code 3, else
// Internal. Answers are cached by what they depend on, the program's size and time included.
// Thread-safe.
std::unique_ptr<ModelDescriber> MakeWorkerDescriber(const WorkerDescriberOptions& options);

}  // namespace tessera::scheduler
