#include "scheduler/launch/log_bound.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera::scheduler {
namespace {

constexpr int64_t kBlock = 4096;

}  // namespace

bool BoundLog(const std::string& path, int64_t keep_bytes) {
  struct stat info;
  // Logs are looked at often and are nearly always short: one call for these.
  if (::lstat(path.c_str(), &info) != 0 || info.st_blocks * int64_t{512} <= keep_bytes + keep_bytes / 4) {
    return false;
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  const int64_t end = (info.st_size - keep_bytes) / kBlock * kBlock;
  const bool bounded = end > 0 && ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, end) == 0;
  ::close(fd);
  return bounded;
}

}  // namespace tessera::scheduler
