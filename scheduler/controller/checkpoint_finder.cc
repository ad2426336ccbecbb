#include "scheduler/controller/checkpoint_finder.h"

#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace tessera::scheduler {

std::optional<FoundCheckpoint> NewestCheckpoint(const std::string& directory) {
  std::optional<FoundCheckpoint> newest;
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
    if (!newest.has_value() || step > newest->step) newest = FoundCheckpoint{step, it->path().string()};
  }
  return newest;
}

}  // namespace tessera::scheduler
