// Text to token ids and back. Two kinds of our own, and one of others:
//
//   byte  ids 0-255 are the bytes themselves, 256-259 <s>, </s>, <pad>, <unk>. Any text round-trips,
//         nothing is trained, and losses are bits per byte: the default for small models.
//   bpe   pieces learnt by SentencePiece (byte-pair encoding; characters it has not seen
//         fall back to bytes, so text round-trips as well). Chosen over training our own:
//         Debian ships it, it streams, and other tools read its model.
//
//   tokenizer.json  what models of the Hugging Face hub come with: tokenizer_json.h.
//
// A tokenizer is a folder: tessera_tokenizer.json names the kind; bpe adds
// tokenizer.model (SentencePiece's own). Beside them stand tokenizer.json and
// tokenizer_config.json, which transformers.AutoTokenizer opens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::worker {

// Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string kind() const = 0;  // "byte", "bpe", "tokenizer.json"
  virtual int64_t vocab_size() const = 0;
  // Adds no special tokens. Encode(a) + Encode(b) decodes to a + b for valid UTF-8 (byte: any bytes).
  virtual std::vector<int32_t> Encode(std::string_view text) const = 0;
  // With the special tokens that the tokenizer puts around a text, if any.
  virtual std::vector<int32_t> EncodeWhole(std::string_view text) const { return Encode(text); }
  // Special tokens decode to nothing.
  virtual std::string Decode(std::span<const int32_t> tokens) const = 0;
  virtual int32_t begin_token() const = 0;  // -1: none, like the next
  virtual int32_t end_token() const = 0;
  // Writes the tokenizer's files into an existing folder.
  virtual absl::Status Save(const std::string& folder) const = 0;
};

inline constexpr char kTokenizerFile[] = "tessera_tokenizer.json";

bool HoldsTokenizer(const std::string& folder);

std::unique_ptr<Tokenizer> MakeByteTokenizer();

// next_line: false at the end of the training text. vocab_size includes 3 special
// tokens and 256 bytes; InvalidArgument when the text is too small or too poor for it.
absl::StatusOr<std::unique_ptr<Tokenizer>> TrainBpeTokenizer(
    const std::function<bool(std::string*)>& next_line, int64_t vocab_size);

// Our own if there is one, else tokenizer.json. NotFound: the folder has neither. DataLoss: a file of it is
// damaged.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& folder);

// From the content of a tokenizer.model. DataLoss: it is none.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenBpeModel(std::string serialized_model);

}  // namespace tessera::worker
