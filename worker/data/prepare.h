// Text to token shards, once per text and tokenizer.
//
//   <output>/train-00000.bin ...   validation-00000.bin ...
//   <output>/tessera_tokenizer.json and the other files of the tokenizer
//   <output>/dataset.json          what was made from what
//
// The text is cut at line ends into blocks of about 64 KiB; every k-th block, k = 1 /
// validation_fraction rounded, is validation. Blocks spread over the whole text rather than its
// tail: a dictionary's tail is the letter Z, which says little about the rest.
//
// Two passes over the input, three for bpe; memory stays bounded. The folder appears whole under its
// name or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::worker {

struct PrepareOptions {
  std::vector<std::string> inputs;  // plain text, gzip or dictzip
  std::string output;
  std::string tokenizer = "byte";     // or "bpe"
  int64_t vocab_size = 4096;          // of bpe
  double validation_fraction = 0.02;  // [0, 0.5]; 0: no validation shards
  int64_t shard_tokens = int64_t{1} << 26;
};

struct PrepareReport {
  bool already_there = false;  // made earlier from the same inputs with the same options
  int64_t text_bytes = 0;
  int64_t train_tokens = 0;
  int64_t validation_tokens = 0;
  int64_t vocab_size = 0;
};

// (what is being done, share done 0-1), at most a few hundred times.
using PrepareProgress = std::function<void(const std::string& phase, double share)>;

// AlreadyExists: the output is there and is something else. InvalidArgument names the option.
absl::StatusOr<PrepareReport> PrepareTokens(const PrepareOptions& options, const PrepareProgress& progress);

}  // namespace tessera::worker
