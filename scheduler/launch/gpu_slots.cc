#include "scheduler/launch/gpu_slots.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "scheduler/launch/process_identity.h"

namespace tessera::scheduler {

absl::StatusOr<std::vector<std::string>> FreeGpus(absl::Span<const std::string> gpus, int count) {
  std::map<std::string, pid_t> owners;
  for (const auto& [pid, names] : ProcessesNaming(kGpusVariable)) {
    for (const auto name : absl::StrSplit(names, ',')) owners.try_emplace(std::string(name), pid);
  }
  std::vector<std::string> free;
  std::string taken;
  for (const std::string& gpu : gpus) {
    if (static_cast<int>(free.size()) == count) break;
    if (const auto owner = owners.find(gpu); owner == owners.end()) {
      free.push_back(gpu);
    } else {
      absl::StrAppend(&taken, "; GPU ", gpu, " is a worker's, process ", owner->second);
    }
  }
  if (static_cast<int>(free.size()) == count) return free;
  return absl::UnavailableError(absl::StrCat(
      "spec.resources.gpus: ", count, count == 1 ? " GPU is needed and " : " GPUs are needed and ",
      free.size(), " of ", gpus.size(), free.size() == 1 ? " is free" : " are free", taken));
}

}  // namespace tessera::scheduler
