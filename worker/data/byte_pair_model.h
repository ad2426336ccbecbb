// Byte-pair encoding as the model of a tokenizer.json has it (Sennrich et al., arXiv 1508.07909,
// section 3.2).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::worker {

struct BytePairOptions {
  bool byte_fallback =
      false;  // a character that is no piece becomes its bytes' <0x41> pieces, if there are all
  bool ignore_merges = false;  // a word that is a piece is not put together from others
  bool fuse_unknown = false;   // neighbouring unknown characters are one
  std::string unknown;         // piece of other characters; empty: they are dropped
};

// Immutable and thread-safe.
class BytePairModel {
 public:
  // merges: from the first to be joined to the last. InvalidArgument names a merge or unknown piece that the
  // vocabulary lacks.
  static absl::StatusOr<BytePairModel> Create(std::unordered_map<std::string, int32_t> vocabulary,
                                              const std::vector<std::pair<std::string, std::string>>& merges,
                                              BytePairOptions options);

  // Appends the word's pieces. Time n log n in its length: a word may be a whole text.
  void Encode(std::string_view word, std::vector<int32_t>* ids) const;

  const std::unordered_map<std::string, int32_t>& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    int32_t rank, piece;
  };
  std::vector<int32_t> Start(std::string_view word) const;

  std::unordered_map<std::string, int32_t> vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;  // by (left, right)
  BytePairOptions options_;
  int32_t unknown_ = -1;
  std::vector<int32_t> bytes_;  // pieces <0x00> to <0xFF>, -1: none
};

}  // namespace tessera::worker
