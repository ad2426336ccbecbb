// Writes token shards of one kind ("train", "validation") into a folder.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/data/shard_format.h"

namespace tessera::worker {

class ShardWriter {
 public:
  // Files are <folder>/<kind>-00000.bin and so on, each of at most shard_tokens tokens.
  ShardWriter(std::string folder, std::string kind, const ShardFormat& format, int64_t shard_tokens);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Ids outside the format are the caller's error.
  absl::Status Append(std::span<const int32_t> tokens);
  absl::Status Finish();  // flushes to the disk
  int64_t tokens() const { return tokens_; }
  int shards() const { return shards_; }

 private:
  absl::Status Begin();
  absl::Status End();
  absl::Status Error(const char* what) const;

  const std::string folder_, kind_;
  const ShardFormat format_;
  const int64_t shard_tokens_;
  std::FILE* file_ = nullptr;
  std::string path_;
  std::vector<uint8_t> bytes_;
  int64_t in_shard_ = 0;
  int64_t tokens_ = 0;
  int shards_ = 0;
};

}  // namespace tessera::worker
