// CRC-32C (Castagnoli), as checkpoints and TensorBoard's record files use it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::worker {

struct FileDigest {
  int64_t bytes = 0;
  uint32_t crc32c = 0;

  bool operator==(const FileDigest&) const = default;
};

// Continues `crc`; 0 starts anew.
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace tessera::worker
