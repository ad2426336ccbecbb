#include "tests/worker/checkpoint/file_calls.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <mutex>

namespace tessera::worker {
namespace {

struct Watch {
  std::mutex mutex;
  std::string folder;
  FileFault fault = FileFault::kNone;
  int at = -1, error = 0, count = 0;
  bool all_later = false;
  std::vector<std::string> calls;
};
Watch& watch() {
  static auto* const instance = new Watch;
  return *instance;
}
std::atomic<bool> watching{false};

// Whether the call is to go on; false sets errno.
bool Pass(const char* what, const std::string& path, const std::string& more = "") {
  if (!watching) return true;
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  if (path.compare(0, w.folder.size(), w.folder) != 0) return true;
  const int number = w.count++;
  w.calls.push_back(std::string(what) + " " + path + (more.empty() ? "" : " " + more));
  const bool hit = number == w.at || (w.all_later && number > w.at && std::string(what) != "unlink");
  if (w.fault == FileFault::kNone || !hit) return true;
  if (w.fault == FileFault::kExit) ::syscall(SYS_exit_group, 77);
  errno = w.error;
  return false;
}

std::string PathOf(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

std::string At(int folder, const char* name) {
  if (name[0] == '/' || folder == AT_FDCWD) return name;
  return PathOf(folder) + "/" + name;
}

}  // namespace

void WatchFileCalls(const std::string& folder, FileFault fault, int at, int error, bool all_later) {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  w.folder = folder;
  w.fault = fault;
  w.at = at;
  w.error = error;
  w.count = 0;
  w.all_later = all_later;
  w.calls.clear();
  watching = true;
}

std::vector<std::string> StopWatching() {
  watching = false;
  const std::lock_guard lock(watch().mutex);
  return watch().calls;
}

}  // namespace tessera::worker

extern "C" {
using tessera::worker::At;
using tessera::worker::Pass;
using tessera::worker::PathOf;
using tessera::worker::watching;

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  if ((flags & O_CREAT) != 0 && !Pass("create", path)) return -1;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
ssize_t write(int fd, const void* data, size_t size) {
  if (watching && !Pass("write", PathOf(fd))) return -1;
  return ::syscall(SYS_write, fd, data, size);
}
int fsync(int fd) {
  if (watching && !Pass("fsync", PathOf(fd))) return -1;
  return 0;  // what it does shows after a loss of power alone
}
int mkdir(const char* path, mode_t mode) {
  if (!Pass("mkdir", path)) return -1;
  return static_cast<int>(::syscall(SYS_mkdir, path, mode));
}
int rename(const char* from, const char* to) {
  if (!Pass("rename", from, to)) return -1;
  return static_cast<int>(::syscall(SYS_rename, from, to));
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (!Pass("exchange", from, to)) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
int remove(const char* path) {
  if (!Pass("unlink", path)) return -1;
  if (::syscall(SYS_unlink, path) == 0) return 0;
  return errno == EISDIR ? static_cast<int>(::syscall(SYS_rmdir, path)) : -1;
}
int unlink(const char* path) {
  if (!Pass("unlink", path)) return -1;
  return static_cast<int>(::syscall(SYS_unlink, path));
}
int rmdir(const char* path) {
  if (!Pass("unlink", path)) return -1;
  return static_cast<int>(::syscall(SYS_rmdir, path));
}
int unlinkat(int folder, const char* name, int flags) {
  if (watching && !Pass("unlink", At(folder, name))) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, folder, name, flags));
}
}
