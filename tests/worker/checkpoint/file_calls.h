// Counts the system calls by which this program changes files below a folder, and makes one of them go wrong.
// Works by defining the C library's functions anew, for the program and the libraries it loads.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tessera::worker {

enum class FileFault { kNone, kExit, kError };

// From now on calls that change something under `folder` are recorded. `fault` happens instead of call number
// `at` (from 0): the process ends as if killed, or this and all later calls that need space (all_later) fail
// with `error`.
void WatchFileCalls(const std::string& folder, FileFault fault = FileFault::kNone, int at = -1, int error = 0,
                    bool all_later = false);
// "write /path", "fsync /path", "rename /from /to", in order.
std::vector<std::string> StopWatching();

}  // namespace tessera::worker
