#include "scheduler/launch/log_bound.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera::scheduler {
namespace {

constexpr int64_t kBlock = 4096;

}  // namespace

bool BoundLog(const std::string& path, int64_t keep_bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  struct stat info;
  bool bounded = false;
  if (::fstat(fd, &info) == 0 && info.st_blocks * int64_t{512} > keep_bytes + keep_bytes / 4) {
    const int64_t end = (info.st_size - keep_bytes) / kBlock * kBlock;
    bounded = end > 0 && ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, end) == 0;
  }
  ::close(fd);
  return bounded;
}

}  // namespace tessera::scheduler
