#include "scheduler/launch/worker_program.h"

#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace tessera::scheduler {

absl::StatusOr<std::string> FindWorkerProgram(const std::string& configured) {
  std::error_code error;
  std::filesystem::path path = configured;
  if (configured.empty()) {
    path = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "tessera-worker";
  }
  path = std::filesystem::absolute(path, error);
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::NotFoundError(
        absl::StrCat("no worker program at '", path.string(), "'; name another one to the scheduler"));
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("worker program '", path.string(), "' may not be executed"));
  }
  return path.string();
}

}  // namespace tessera::scheduler
