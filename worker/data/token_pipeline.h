// The steps of a tokenizer.json around its model, each parsed from its JSON object. Anything not known is
// Unimplemented, by its name.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::worker {

// Text to text.
using Normalizer = std::function<std::string(std::string)>;
// Cuts the words of a part of a text further; at_start: the part is the text's first.
using PreTokenizer = std::function<std::vector<std::string>(std::vector<std::string> words, bool at_start)>;
// Pieces to pieces; the last step's are joined.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string> pieces)>;

absl::StatusOr<Normalizer> ParseNormalizer(const nlohmann::json& json);
absl::StatusOr<PreTokenizer> ParsePreTokenizer(const nlohmann::json& json);
absl::StatusOr<Decoder> ParseDecoder(const nlohmann::json& json);

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool normalized = false;                       // searched in the normalised text
  bool strip_left = false, strip_right = false;  // swallows the white space there
  bool single_word = false;                      // not within a word
  bool special = false;
};
absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const nlohmann::json& json);

// A part of a text that is an added token, or not (token null).
struct TextPart {
  std::string_view text;
  const AddedToken* token = nullptr;
};
// Leftmost first, of those the longest.
std::vector<TextPart> FindAddedTokens(std::string_view text, const std::vector<const AddedToken*>& tokens);

// What the post-processor puts around a single text.
struct Frame {
  std::vector<int32_t> before, after;
};
absl::StatusOr<Frame> ParseFrame(const nlohmann::json& json);

}  // namespace tessera::worker
