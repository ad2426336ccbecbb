// WordPiece (Schuster and Nakajima, 2012) as BERT uses it: text to ids of a vocab.txt.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::worker {

class WordPiece {
 public:
  // folder: vocab.txt, and tokenizer_config.json, of which do_lower_case (default true) is read: lower case
  // without accents. NotFound: no vocab.txt. InvalidArgument: it lacks a special token.
  static absl::StatusOr<std::unique_ptr<WordPiece>> Open(const std::string& folder);

  // Without special tokens. Words are cut at white space, punctuation and around CJK characters, then
  // into the longest pieces known; a word that can't be is [UNK].
  std::vector<int32_t> Encode(std::string_view text) const;

  int64_t vocab_size() const { return static_cast<int64_t>(pieces_.size()); }
  int32_t classify() const { return classify_; }
  int32_t separator() const { return separator_; }
  int32_t padding() const { return padding_; }
  int32_t mask() const { return mask_; }

 private:
  WordPiece() = default;
  void AppendWord(std::string_view word, std::vector<int32_t>* ids) const;

  std::unordered_map<std::string, int32_t> pieces_;
  bool lower_ = true;
  int32_t classify_ = 0, separator_ = 0, padding_ = 0, mask_ = 0, unknown_ = 0;
};

}  // namespace tessera::worker
