// The folder of one run's checkpoints: which there are, and which go.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::worker {

struct Retention {
  int keep = 2;            // newest ones
  int64_t keep_every = 0;  // and those of steps divisible by it; 0: none
};

// Complete checkpoints, oldest first, as paths.
std::vector<std::string> ListCheckpoints(const std::string& directory);
// Complete ones beside `checkpoint` of an earlier step, newest first.
std::vector<std::string> EarlierCheckpoints(const std::string& checkpoint);

// Removes what retention does not keep of the checkpoints up to `step`, whose own stays. Those of later steps
// are of a run that was taken back: neither removed nor counted.
void RemoveOld(const std::string& directory, const Retention& retention, int64_t step);
// What attempts of killed runs have left. The folder is one run's, and its own attempt is complete.
void RemoveAttempts(const std::string& directory);
// Renames a damaged checkpoint to <name>.damaged: nothing takes it for one any more, and people can look at
// it. Returns its new path, or the old one if that failed.
std::string SetAside(const std::string& checkpoint);

}  // namespace tessera::worker
