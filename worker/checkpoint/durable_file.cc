#include "worker/checkpoint/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/checkpoint/crc32c.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

// Closes on the way out.
struct Descriptor {
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd;
};

}  // namespace

absl::Status FileError(const std::string& what, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  const std::string message = absl::StrCat(what, " ", path, ": ", std::strerror(error),
                                           full ? "; free some space or lower spec.checkpoint.keep" : "");
  if (error == ENOENT) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  return absl::FailedPreconditionError(message);
}

absl::StatusOr<FileDigest> Digest(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return FileError("can't open", path, errno);
  FileDigest digest;
  std::vector<char> buffer(1 << 20);
  while (true) {
    const ssize_t got = ::read(file.fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("can't read", path, errno);
    if (got == 0) return digest;
    digest.bytes += got;
    digest.crc32c = Crc32c(buffer.data(), static_cast<size_t>(got), digest.crc32c);
  }
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return FileError("can't open", path, errno);
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (true) {
    const ssize_t got = ::read(file.fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("can't read", path, errno);
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
}

absl::Status WriteDurably(const std::string& path, const std::string& text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.fd < 0) return FileError("can't create", path, errno);
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file.fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return FileError("can't write", path, errno);
    done += static_cast<size_t>(wrote);
  }
  if (::fsync(file.fd) != 0) return FileError("can't flush", path, errno);
  if (::close(std::exchange(file.fd, -1)) != 0) return FileError("can't close", path, errno);
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.fd < 0 || ::fsync(directory.fd) != 0) return FileError("can't flush", path, errno);
  return absl::OkStatus();
}

absl::Status PutInPlace(const std::string& made, const std::string& path) {
  std::error_code ignored;
  const std::string parent = fs::path(path).parent_path();
  if (::rename(made.c_str(), path.c_str()) == 0) return SyncDirectory(parent);
  if (errno != ENOTEMPTY && errno != EEXIST) return FileError("can't rename into place", path, errno);
  if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
    // Not every file system can exchange: for a moment there is neither.
    if (errno != EINVAL && errno != ENOSYS) return FileError("can't rename into place", path, errno);
    const std::string aside = made + ".old.tmp";
    if (::rename(path.c_str(), aside.c_str()) != 0) return FileError("can't move away", path, errno);
    if (::rename(made.c_str(), path.c_str()) != 0) {
      absl::Status failed = FileError("can't rename into place", path, errno);
      ::rename(aside.c_str(), path.c_str());
      return failed;
    }
    fs::remove_all(aside, ignored);
  }
  TESSERA_RETURN_IF_ERROR(SyncDirectory(parent));
  fs::remove_all(made, ignored);  // holds what was there
  return absl::OkStatus();
}

}  // namespace tessera::worker
