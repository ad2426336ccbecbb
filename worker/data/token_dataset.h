// Token shards (llm.c layout) and the order in which ranks read them.
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
#include "worker/models/model.h"

namespace tessera::worker {

// Maps the shards read-only. Thread-safe after Open.
class TokenDataset {
 public:
  virtual ~TokenDataset() = default;
  virtual int64_t tokens() const = 0;
  virtual int64_t max_token() const = 0;  // largest id its format can hold
  // Samples of `length` inputs and `length` targets that do not overlap.
  virtual int64_t samples(int64_t length) const = 0;
  // tokens and targets (the tokens that follow) of the samples, [indices, length].
  virtual Batch Read(const std::vector<int64_t>& indices, int64_t length) const = 0;
};

// Which shards of a folder made by `prepare` (dataset.json lies in it) are meant; shards in any other
// folder are of one kind.
enum class DataPart { kTraining, kValidation };

// pattern: a file, a folder (in name order its train-*.bin or validation-*.bin when it was prepared,
// else all its *.bin) or a glob. NotFound tells what the folder holds instead; DataLoss names the file
// and what is wrong with it: bad magic, truncated (expected and found bytes).
absl::StatusOr<std::unique_ptr<TokenDataset>> OpenTokenDataset(const std::string& pattern, DataPart part);

// A permutation of the samples for each pass over the data, computed from
// (seed, position) alone: nothing to save for a resumed run.
class Sampler {
 public:
  Sampler(int64_t samples, uint64_t seed);
  int64_t At(int64_t position) const;  // position >= 0, any number of passes

  // Samples (At of its positions) of rank's micro-batch: disjoint between ranks, and together the same
  // set for any world size at equal world_size * batch.
  std::vector<int64_t> MicroBatch(int64_t step, int micro_step, int accumulation, int rank, int world_size,
                                  int64_t batch) const;

 private:
  int64_t samples_;
  uint64_t seed_;
};

}  // namespace tessera::worker
