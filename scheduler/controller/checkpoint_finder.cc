#include "scheduler/controller/checkpoint_finder.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace tessera::scheduler {

std::string CheckpointDirectory(const v1::TrainingJob& job, const std::string& run_directory) {
  const std::string& uri = job.spec().checkpoint().uri();
  if (uri.empty()) return run_directory + "/checkpoints";
  return absl::StrCat(std::string(absl::StripPrefix(uri, "file://")), "/", job.name(), "-",
                      job.uid().substr(0, 8));
}

std::vector<FoundCheckpoint> FindCheckpoints(const std::string& directory) {
  std::vector<FoundCheckpoint> all;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    absl::string_view digits = name;
    int64_t step = 0;
    if (!absl::ConsumePrefix(&digits, "step-") || digits.empty() ||
        digits.find_first_not_of("0123456789") != absl::string_view::npos ||
        !absl::SimpleAtoi(digits, &step)) {
      continue;
    }
    std::error_code missing;
    if (!std::filesystem::is_regular_file(it->path() / "manifest.json", missing)) continue;
    all.push_back({step, it->path().string()});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return all;
}

std::optional<FoundCheckpoint> NewestCheckpoint(const std::string& directory) {
  std::vector<FoundCheckpoint> all = FindCheckpoints(directory);
  if (all.empty()) return std::nullopt;
  return std::move(all.back());
}

}  // namespace tessera::scheduler
