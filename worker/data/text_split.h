// Cuts text into the words within which a byte-pair encoding joins pieces, as the pre_tokenizer of a
// tokenizer.json says. Patterns are matched by Oniguruma, in Ruby syntax: the library and syntax that Hugging
// Face's tokenizers use, so a pattern means the same here, Unicode classes included.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::worker {

// Thread-safe.
class Pattern {
 public:
  // InvalidArgument: Oniguruma can't compile it.
  static absl::StatusOr<std::unique_ptr<Pattern>> Compile(const std::string& expression);
  virtual ~Pattern() = default;
  // [begin, end) of the matches in valid UTF-8, in order, none of them empty.
  virtual std::vector<std::pair<size_t, size_t>> FindAll(std::string_view text) const = 0;
};

// What becomes of a match when text is split by it: a word of its own, nothing, or a part of a neighbour.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// invert: what lies between the matches is taken for the matches.
std::vector<std::string> Split(std::string_view text, const Pattern& pattern, SplitBehavior behavior,
                               bool invert);

// The characters of valid UTF-8, as views into it.
std::vector<std::string_view> Characters(std::string_view text);
// Bytes that are no UTF-8 become U+FFFD.
std::string ToValidUtf8(std::string_view text);

// The printable characters that stand for the bytes in the ByteLevel alphabet.
const std::vector<std::string>& ByteAlphabet();

}  // namespace tessera::worker
