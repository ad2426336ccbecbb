#include "worker/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "worker/checkpoint/manifest.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> StepOf(const std::string& path) {
  const std::string name = fs::path(path).filename();
  absl::string_view digits = name;
  int64_t step = 0;
  if (!absl::ConsumePrefix(&digits, "step-") || digits.empty() ||
      digits.find_first_not_of("0123456789") != absl::string_view::npos || !absl::SimpleAtoi(digits, &step)) {
    return std::nullopt;
  }
  return step;
}

}  // namespace

std::vector<std::string> ListCheckpoints(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (StepOf(entry.path()).has_value() && fs::exists(entry.path() / "manifest.json", ignored)) {
      found.push_back(entry.path());
    }
  }
  // By number: names grow longer after step 99,999,999.
  std::sort(found.begin(), found.end(),
            [](const std::string& a, const std::string& b) { return *StepOf(a) < *StepOf(b); });
  return found;
}

std::vector<std::string> EarlierCheckpoints(const std::string& checkpoint) {
  const std::string path = fs::path(checkpoint + "/").lexically_normal().parent_path();
  const std::optional<int64_t> step = StepOf(path);
  if (!step.has_value()) return {};
  std::vector<std::string> earlier = ListCheckpoints(fs::path(path).parent_path());
  std::erase_if(earlier, [&](const std::string& other) { return *StepOf(other) >= *step; });
  std::reverse(earlier.begin(), earlier.end());
  return earlier;
}

void RemoveOld(const std::string& directory, const Retention& retention, int64_t step) {
  std::vector<std::string> all = ListCheckpoints(directory);
  std::erase_if(all, [&](const std::string& path) { return *StepOf(path) > step; });
  for (size_t i = 0; i + static_cast<size_t>(std::max(retention.keep, 1)) < all.size(); ++i) {
    if (retention.keep_every > 0 && *StepOf(all[i]) % retention.keep_every == 0) continue;
    std::error_code ignored;
    fs::remove(all[i] + "/manifest.json", ignored);  // incomplete first, then gone
    fs::remove_all(all[i], ignored);
  }
}

void RemoveAttempts(const std::string& directory) {
  std::error_code ignored;
  std::vector<fs::path> attempts;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    const bool emptied = StepOf(name).has_value() && !fs::exists(entry.path() / "manifest.json", ignored);
    if ((absl::StartsWith(name, "step-") && absl::EndsWith(name, ".tmp")) || emptied) {
      attempts.push_back(entry.path());
    }
  }
  for (const fs::path& attempt : attempts) fs::remove_all(attempt, ignored);
}

std::string SetAside(const std::string& checkpoint) {
  const std::string path = fs::path(checkpoint + "/").lexically_normal().parent_path();
  const std::string aside = path + ".damaged";
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(path, aside, error);
  return error ? path : aside;
}

}  // namespace tessera::worker
