// The plug-in libtessera_sentencepiece.so: the only file that sees SentencePiece.
#include "worker/data/sentence_piece.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

namespace tessera::worker {
namespace {

class Processor final : public SentencePiece {
 public:
  sentencepiece::util::Status Load(const std::string& model) {
    return processor_.LoadFromSerializedProto(model);
  }

  int size() const override { return processor_.GetPieceSize(); }
  std::string Piece(int id) const override { return processor_.IdToPiece(id); }
  bool IsControl(int id) const override { return processor_.IsControl(id); }
  int begin_id() const override { return processor_.bos_id(); }
  int end_id() const override { return processor_.eos_id(); }
  std::vector<int> Encode(std::string_view text) const override { return processor_.EncodeAsIds(text); }
  std::string Decode(const std::vector<int>& ids) const override { return processor_.DecodeIds(ids); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::function<bool(std::string*)>& next) : next_(next) { Next(); }
  bool done() const override { return done_; }
  void Next() override { done_ = !next_(&line_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<bool(std::string*)>& next_;
  std::string line_;
  bool done_ = false;
};

}  // namespace

}  // namespace tessera::worker

extern "C" {

tessera::worker::SentencePiece* TesseraLoadSentencePiece(const std::string& model, std::string* error) {
  auto processor = std::make_unique<tessera::worker::Processor>();
  if (const auto status = processor->Load(model); !status.ok()) {
    *error = status.ToString();
    return nullptr;
  }
  return processor.release();
}

void TesseraLearnSentencePiece(const std::string& arguments,
                               const std::function<bool(std::string*)>& next_line, std::string* model,
                               std::string* error) {
  tessera::worker::Lines lines(next_line);
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &lines, model);
  if (!status.ok()) *error = status.ToString();
}

}  // extern "C"
