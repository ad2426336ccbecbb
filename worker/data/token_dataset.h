// Token shards (llm.c layout).
//
// A shard is a header of 256 little-endian int32 {magic, version, token count, ...}
// followed by the tokens. Magics: 20240520 (GPT-2, uint16), 20240801 (Llama-3,
// uint32), 20261129 (bytes, uint8; ids 0-255 are bytes, ids from 256 never stand in a shard).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"

namespace tessera::worker {

// Maps the shards read-only. Thread-safe after Open.
class TokenDataset {
 public:
  virtual ~TokenDataset() = default;
  virtual int64_t tokens() const = 0;
  virtual int64_t max_token() const = 0;  // largest id its format can hold
  // OutOfRange names the file and the offset of the first id not below `vocab_size`. Reads everything.
  virtual absl::Status CheckTokens(int64_t vocab_size) const = 0;
  // Samples of `length` inputs and `length` targets that do not overlap.
  virtual int64_t samples(int64_t length) const = 0;
  // inputs and targets (the tokens that follow) of the samples, [indices, length].
  virtual Batch Read(const std::vector<int64_t>& indices, int64_t length) const = 0;
};

// pattern: a file, a folder (in name order its train-*.bin or validation-*.bin when it was prepared,
// else all its *.bin) or a glob. NotFound tells what the folder holds instead; DataLoss names the file
// and what is wrong with it: bad magic, truncated (expected and found bytes).
absl::StatusOr<std::unique_ptr<TokenDataset>> OpenTokenDataset(const std::string& pattern, DataPart part);

// Samples of `length` tokens. InvalidArgument: the tokens do not make one.
absl::StatusOr<std::unique_ptr<Dataset>> MakeTokenSamples(std::unique_ptr<TokenDataset> tokens,
                                                          int64_t length);

}  // namespace tessera::worker
