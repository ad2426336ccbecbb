#include "worker/data/tokenizer.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/data/hugging_face_tokenizer.h"
#include "worker/data/text_file.h"
#include "worker/data/tokenizer_json.h"

namespace tessera::worker {
namespace {

constexpr int32_t kBegin = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  std::string kind() const override { return "byte"; }
  int64_t vocab_size() const override { return 256 + 4; }
  int32_t begin_token() const override { return kBegin; }
  int32_t end_token() const override { return kBegin + 1; }

  std::vector<int32_t> Encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }

  std::string Decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (int32_t token : tokens) {
      if (token >= 0 && token < 256) text.push_back(static_cast<char>(token));
    }
    return text;
  }

  absl::Status Save(const std::string& folder) const override {
    TESSERA_RETURN_IF_ERROR(
        WriteTextFile(absl::StrCat(folder, "/", kTokenizerFile),
                      nlohmann::json{{"kind", kind()}, {"vocab_size", vocab_size()}}.dump() + "\n"));
    return SaveHuggingFaceByteTokenizer(folder);
  }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

bool HoldsTokenizer(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(absl::StrCat(folder, "/", kTokenizerFile), ignored) ||
         std::filesystem::exists(folder + "/tokenizer.json", ignored);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kTokenizerFile);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) && HoldsTokenizer(folder)) return OpenTokenizerJson(folder);
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string()) {
    return absl::DataLossError(absl::StrCat(path, ": no JSON object with a kind"));
  }
  const std::string kind = json["kind"];
  if (kind == "byte") return MakeByteTokenizer();
  if (kind == "bpe") {
    TESSERA_ASSIGN_OR_RETURN(std::string model, ReadTextFile(absl::StrCat(folder, "/tokenizer.model")));
    return OpenBpeModel(std::move(model));
  }
  return absl::UnimplementedError(absl::StrCat(path, ": kind '", kind, "' is not known; known: byte, bpe"));
}

}  // namespace tessera::worker
