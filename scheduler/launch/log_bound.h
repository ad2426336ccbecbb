// Keeps a worker's log from filling the disk.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::scheduler {

inline constexpr int64_t kMaxLogBytes = int64_t{32} << 20;  // of each worker and epoch

// Gives the oldest part of a growing file back to the file system when it holds more than a quarter above
// `keep_bytes`: what remains keeps its offsets, and its writer notices nothing. False when nothing was done:
// the file is small or missing, or its file system can't punch holes.
bool BoundLog(const std::string& path, int64_t keep_bytes);

}  // namespace tessera::scheduler
