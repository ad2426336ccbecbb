#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "worker/data/text_split.h"
#include "worker/data/token_pipeline.h"

namespace tessera::worker {
namespace {

using nlohmann::json;
using Pieces = std::vector<std::string>;

// All pieces as one, their characters back to bytes, whether they are text or a part of a character.
Pieces DecodeBytes(const Pieces& pieces) {
  static const auto* const kBytes = [] {
    auto* bytes = new std::unordered_map<std::string, char>;
    for (int byte = 0; byte < 256; ++byte) bytes->emplace(ByteAlphabet()[byte], static_cast<char>(byte));
    return bytes;
  }();
  std::string text;
  for (const std::string& piece : pieces) {
    std::string bytes;
    for (std::string_view character : Characters(piece)) {
      const auto found = kBytes->find(std::string(character));
      if (found == kBytes->end()) {  // an added token: it stands for itself
        bytes = piece;
        break;
      }
      bytes.push_back(found->second);
    }
    text += bytes;
  }
  return {text};
}

// Runs of <0x41> pieces to text; a run that is none becomes a U+FFFD for each of its bytes.
Pieces DecodeByteFallback(const Pieces& pieces) {
  Pieces decoded;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    const bool valid = ToValidUtf8(run) == run;
    if (valid) decoded.push_back(run);
    for (size_t i = 0; !valid && i < run.size(); ++i) decoded.emplace_back("\xef\xbf\xbd");
    run.clear();
  };
  for (const std::string& piece : pieces) {
    uint32_t byte = 0;
    const bool is_byte = piece.size() == 6 && absl::StartsWith(piece, "<0x") && piece[5] == '>' &&
                         absl::SimpleHexAtoi(piece.substr(3, 2), &byte);
    if (is_byte) {
      run.push_back(static_cast<char>(byte));
      continue;
    }
    flush();
    decoded.push_back(piece);
  }
  flush();
  return decoded;
}

Pieces StripEach(Pieces pieces, const std::string& content, size_t start, size_t stop) {
  for (std::string& piece : pieces) {
    for (size_t i = 0; i < start && absl::StartsWith(piece, content); ++i) piece.erase(0, content.size());
    for (size_t i = 0; i < stop && absl::EndsWith(piece, content); ++i)
      piece.resize(piece.size() - content.size());
  }
  return pieces;
}

}  // namespace

absl::StatusOr<Decoder> ParseDecoder(const json& part) {
  if (part.is_null()) {
    return Decoder([](const Pieces& pieces) { return Pieces{absl::StrJoin(pieces, " ")}; });
  }
  const std::string type = part.at("type");
  if (type == "Sequence") {
    std::vector<Decoder> steps;
    for (const json& step : part.at("decoders")) {
      TESSERA_ASSIGN_OR_RETURN(Decoder parsed, ParseDecoder(step));
      steps.push_back(std::move(parsed));
    }
    return Decoder([steps](Pieces pieces) {
      for (const Decoder& step : steps) pieces = step(std::move(pieces));
      return pieces;
    });
  }
  if (type == "ByteLevel") return Decoder(DecodeBytes);
  if (type == "ByteFallback") return Decoder(DecodeByteFallback);
  if (type == "Fuse") return Decoder([](const Pieces& pieces) { return Pieces{absl::StrJoin(pieces, "")}; });
  if (type == "Strip") {
    return Decoder([content = part.at("content").get<std::string>(), start = part.at("start").get<size_t>(),
                    stop = part.at("stop").get<size_t>()](Pieces pieces) {
      return StripEach(std::move(pieces), content, start, stop);
    });
  }
  if (type == "Replace" && part.at("pattern").contains("String")) {
    return Decoder([from = part.at("pattern").at("String").get<std::string>(),
                    to = part.at("content").get<std::string>()](Pieces pieces) {
      for (std::string& piece : pieces) piece = absl::StrReplaceAll(piece, {{from, to}});
      return pieces;
    });
  }
  if (type == "Metaspace") {
    const bool prefixed =
        part.value("prepend_scheme", part.value("add_prefix_space", true) ? "always" : "never") != "never";
    return Decoder([mark = part.at("replacement").get<std::string>(), prefixed](Pieces pieces) {
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (i == 0 && prefixed && absl::StartsWith(pieces[i], mark)) pieces[i].erase(0, mark.size());
        pieces[i] = absl::StrReplaceAll(pieces[i], {{mark, " "}});
      }
      return pieces;
    });
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer.json: decoder '", type, "' is not known"));
}

}  // namespace tessera::worker
