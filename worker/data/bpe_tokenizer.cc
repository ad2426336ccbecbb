#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/data/hugging_face_tokenizer.h"
#include "worker/data/sentence_piece.h"
#include "worker/data/text_file.h"
#include "worker/data/tokenizer.h"

namespace tessera::worker {
namespace {

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(std::unique_ptr<SentencePiece> pieces, std::string model)
      : pieces_(std::move(pieces)), model_(std::move(model)) {}

  std::string kind() const override { return "bpe"; }
  int64_t vocab_size() const override { return pieces_->size(); }
  int32_t begin_token() const override { return pieces_->begin_id(); }
  int32_t end_token() const override { return pieces_->end_id(); }

  std::vector<int32_t> Encode(std::string_view text) const override { return pieces_->Encode(text); }
  std::string Decode(std::span<const int32_t> tokens) const override {
    std::vector<int> ids;
    for (int32_t token : tokens) {
      if (token >= 0 && token < pieces_->size() && !pieces_->IsControl(token)) ids.push_back(token);
    }
    return pieces_->Decode(ids);
  }

  absl::Status Save(const std::string& folder) const override {
    TESSERA_RETURN_IF_ERROR(WriteTextFile(folder + "/tokenizer.model", model_));
    TESSERA_RETURN_IF_ERROR(
        WriteTextFile(absl::StrCat(folder, "/", kTokenizerFile),
                      nlohmann::json{{"kind", kind()}, {"vocab_size", vocab_size()}}.dump() + "\n"));
    std::vector<std::string> names;
    for (int id = 0; id < pieces_->size(); ++id) names.push_back(pieces_->Piece(id));
    return SaveHuggingFaceBpeTokenizer(folder, names);
  }

 private:
  const std::unique_ptr<SentencePiece> pieces_;
  const std::string model_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenBpeModel(std::string model) {
  std::string error;
  auto pieces = LoadSentencePiece(model, &error);
  if (pieces == nullptr) return absl::DataLossError(absl::StrCat("tokenizer.model: ", error));
  return std::make_unique<BpeTokenizer>(std::move(pieces), std::move(model));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TrainBpeTokenizer(
    const std::function<bool(std::string*)>& next_line, int64_t vocab_size) {
  // Text is taken as it is (no normalisation, no added space), so that it
  // round-trips and lines can be encoded one by one. One thread: the same pieces everywhere.
  const std::string arguments = absl::StrCat(
      "--model_type=bpe --byte_fallback=true --normalization_rule_name=identity --add_dummy_prefix=false "
      "--remove_extra_whitespaces=false --split_digits=true --allow_whitespace_only_pieces=true "
      "--character_coverage=0.9999 --unk_id=0 --bos_id=1 --eos_id=2 --pad_id=-1 --num_threads=1 "
      "--max_sentence_length=65536 --minloglevel=2 --vocab_size=",
      vocab_size);
  std::string error;
  std::string model = LearnSentencePiece(arguments, next_line, &error);
  if (model.empty())
    return absl::InvalidArgumentError(absl::StrCat("cannot learn ", vocab_size, " pieces: ", error));
  return OpenBpeModel(std::move(model));
}

}  // namespace tessera::worker
