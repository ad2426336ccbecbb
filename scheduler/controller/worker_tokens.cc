#include "scheduler/controller/worker_tokens.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kBytes = 32;

}  // namespace

std::string WorkerTokenPath(const std::string& run_directory, int epoch) {
  return absl::StrCat(run_directory, "/worker-token-epoch-", epoch);
}

absl::Status EnsureWorkerToken(const std::string& run_directory, int epoch) {
  if (ReadWorkerToken(run_directory, epoch).ok()) return absl::OkStatus();
  std::string bytes(kBytes, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return absl::ErrnoToStatus(errno, "getting random bytes");
  }
  const std::string token = absl::BytesToHexString(bytes);
  const std::string path = WorkerTokenPath(run_directory, epoch);
  const std::string next = path + ".next";
  const int fd = ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("creating '", next, "'"));
  const bool written = ::write(fd, token.data(), token.size()) == static_cast<ssize_t>(token.size());
  ::close(fd);
  if (!written || ::rename(next.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("writing '", path, "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWorkerToken(const std::string& run_directory, int epoch) {
  std::ifstream file(WorkerTokenPath(run_directory, epoch));
  std::string token;
  if (!std::getline(file, token) || token.size() != 2 * kBytes) {
    return absl::NotFoundError(absl::StrCat("no worker token for epoch ", epoch));
  }
  return token;
}

void RemoveWorkerToken(const std::string& run_directory, int epoch) {
  std::error_code ignored;
  std::filesystem::remove(WorkerTokenPath(run_directory, epoch), ignored);
}

}  // namespace tessera::scheduler
