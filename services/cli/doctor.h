// What this machine lacks for training, and what to do about it.
#pragma once

#include <string>
#include <vector>

#include "services/cli/environment.h"

namespace tessera::cli {

enum class Health { kGood, kNote, kBad };  // kBad: training will fail or be refused

struct Finding {
  std::string subject;  // "memory"
  Health health = Health::kGood;
  std::string found;
  std::string advice;  // empty when there is nothing to do
};

// Looks at programs, cores, memory, disk, the state directory, ports, open files, the clock, the host's name
// and GPUs. Changes nothing, and starts nothing but, where there are GPUs, `tessera-worker gpus`.
std::vector<Finding> ExamineMachine(const Environment& environment, const std::string& state_directory);

}  // namespace tessera::cli
