// SentencePiece, loaded when first asked for from a plug-in beside the program.
//
// It can't be linked: Debian's carries and exports a protobuf of its own, of another
// version than gRPC's, and the two take each other's symbols. And its header declares absl::string_view,
// which Abseil does too, so no file includes both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::worker {

// Thread-safe.
class SentencePiece {
 public:
  virtual ~SentencePiece() = default;
  virtual int size() const = 0;
  virtual std::string Piece(int id) const = 0;
  virtual bool IsControl(int id) const = 0;
  virtual int begin_id() const = 0;
  virtual int end_id() const = 0;
  virtual std::vector<int> Encode(std::string_view text) const = 0;
  virtual std::string Decode(const std::vector<int>& ids) const = 0;
};

// Null, and the reason in `error`, when `model` is no serialized model or the plug-in can't be loaded.
std::unique_ptr<SentencePiece> LoadSentencePiece(const std::string& model, std::string* error);

// The serialized model; empty, and the reason in `error`, when learning failed.
std::string LearnSentencePiece(const std::string& arguments,
                               const std::function<bool(std::string*)>& next_line, std::string* error);

}  // namespace tessera::worker
