// The header of a token shard: 256 little-endian int32 {magic, version, token count, 0, ...}.
#pragma once

#include <cstdint>

namespace tessera::worker {

inline constexpr int kShardHeaderWords = 256;
inline constexpr int64_t kShardHeaderBytes = int64_t{4} * kShardHeaderWords;
// Counts are int32 in the header.
inline constexpr int64_t kLargestShard = 0x7fffffff;

struct ShardFormat {
  int32_t magic;
  int32_t version;
  int bytes_per_token;
  int64_t max_token;
};

inline constexpr ShardFormat kGpt2Shard{20240520, 1, 2, 0xffff};
inline constexpr ShardFormat kLlama3Shard{20240801, 7, 4, 0xffffffff};
inline constexpr ShardFormat kByteShard{20261129, 1, 1, 255};
inline constexpr ShardFormat kShardFormats[] = {kGpt2Shard, kLlama3Shard, kByteShard};

}  // namespace tessera::worker
