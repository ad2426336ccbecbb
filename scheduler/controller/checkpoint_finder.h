#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::scheduler {

struct FoundCheckpoint {
  int64_t step = 0;
  std::string path;
};

// The complete checkpoint of the largest step in a folder: `step-<digits>` with a
// manifest.json. Others, unfinished ones among them, are passed over.
std::optional<FoundCheckpoint> NewestCheckpoint(const std::string& directory);

}  // namespace tessera::scheduler
