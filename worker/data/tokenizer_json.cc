#include "worker/data/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/data/byte_pair_model.h"
#include "worker/data/text_file.h"
#include "worker/data/text_split.h"
#include "worker/data/token_pipeline.h"

namespace tessera::worker {
namespace {

using nlohmann::json;

// The files as they were read, to be saved beside an exported model.
struct TokenizerFiles {
  std::string tokenizer, config;  // config empty: there is none
};

struct TokenizerParts {
  BytePairModel model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Decoder decoder;
  Frame frame;
  std::vector<AddedToken> added;
  int32_t begin = -1, end = -1;
};

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(TokenizerParts parts, TokenizerFiles files)
      : parts_(std::move(parts)), files_(std::move(files)) {
    for (const auto& [piece, id] : parts_.model.vocabulary()) Name(id, piece);
    for (AddedToken& token : parts_.added) {
      Name(token.id, token.content);
      if (token.special) special_[static_cast<size_t>(token.id)] = true;
      if (token.normalized) token.content = parts_.normalizer(std::move(token.content));
      if (!token.content.empty()) (token.normalized ? in_normalized_ : in_raw_).push_back(&token);
    }
  }

  std::string kind() const override { return "tokenizer.json"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t begin_token() const override { return parts_.begin; }
  int32_t end_token() const override { return parts_.end; }

  std::vector<int32_t> Encode(std::string_view text) const override {
    const std::string valid = ToValidUtf8(text);
    std::vector<int32_t> ids;
    bool at_start = true;
    for (const TextPart& part : FindAddedTokens(valid, in_raw_)) {
      if (part.token != nullptr) {
        ids.push_back(part.token->id);
      } else {
        EncodePart(parts_.normalizer(std::string(part.text)), at_start, &ids);
      }
      at_start = false;
    }
    return ids;
  }

  std::vector<int32_t> EncodeWhole(std::string_view text) const override {
    std::vector<int32_t> ids = parts_.frame.before;
    const std::vector<int32_t> inner = Encode(text);
    ids.insert(ids.end(), inner.begin(), inner.end());
    ids.insert(ids.end(), parts_.frame.after.begin(), parts_.frame.after.end());
    return ids;
  }

  std::string Decode(std::span<const int32_t> tokens) const override {
    std::vector<std::string> pieces;
    for (const int32_t token : tokens) {
      const auto id = static_cast<size_t>(token);
      if (token >= 0 && id < pieces_.size() && !special_[id]) pieces.push_back(pieces_[id]);
    }
    std::string text;
    for (const std::string& part : parts_.decoder(std::move(pieces))) text += part;
    return text;
  }

  absl::Status Save(const std::string& folder) const override {
    TESSERA_RETURN_IF_ERROR(WriteTextFile(folder + "/tokenizer.json", files_.tokenizer));
    if (files_.config.empty()) return absl::OkStatus();
    return WriteTextFile(folder + "/tokenizer_config.json", files_.config);
  }

 private:
  void Name(int32_t id, const std::string& piece) {
    if (static_cast<size_t>(id) >= pieces_.size()) {
      pieces_.resize(static_cast<size_t>(id) + 1);
      special_.resize(pieces_.size());
    }
    pieces_[static_cast<size_t>(id)] = piece;
  }

  void EncodePart(const std::string& normalized, bool at_start, std::vector<int32_t>* ids) const {
    for (const TextPart& part : FindAddedTokens(normalized, in_normalized_)) {
      if (part.token != nullptr) {
        ids->push_back(part.token->id);
      } else {
        for (const std::string& word : parts_.pre_tokenizer({std::string(part.text)}, at_start)) {
          parts_.model.Encode(word, ids);
        }
      }
      at_start = false;
    }
  }

  TokenizerParts parts_;
  const TokenizerFiles files_;
  std::vector<std::string> pieces_;  // by id
  std::vector<bool> special_;        // by id
  std::vector<const AddedToken*> in_raw_, in_normalized_;
};

absl::StatusOr<BytePairModel> ParseModel(const json& model) {
  // Old files have no type.
  const std::string type = model.value("type", model.contains("merges") ? "BPE" : "unknown");
  if (type != "BPE") {
    return absl::UnimplementedError(
        absl::StrCat("tokenizer.json: model '", type, "' is not known; only BPE is"));
  }
  const json none = "";
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.contains(field) && !model[field].is_null() && model[field] != none) {
      return absl::UnimplementedError(absl::StrCat("tokenizer.json: model.", field, " is not known"));
    }
  }
  BytePairOptions options;
  options.byte_fallback = model.value("byte_fallback", false);
  options.ignore_merges = model.value("ignore_merges", false);
  options.fuse_unknown = model.value("fuse_unk", false);
  if (model.contains("unk_token") && model["unk_token"].is_string()) options.unknown = model["unk_token"];
  std::vector<std::pair<std::string, std::string>> merges;
  for (const json& merge : model.at("merges")) {
    if (merge.is_array()) {
      merges.emplace_back(merge.at(0), merge.at(1));
      continue;
    }
    const std::string text = merge;
    const size_t space = text.find(' ');
    if (space == std::string::npos) {
      return absl::DataLossError(absl::StrCat("tokenizer.json: model.merges: '", text, "' is no pair"));
    }
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  std::unordered_map<std::string, int32_t> vocabulary;
  for (const auto& [piece, id] : model.at("vocab").items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > (1u << 30)) {
      return absl::DataLossError(
          absl::StrCat("tokenizer.json: model.vocab: id of '", piece, "' is ", id.dump()));
    }
    vocabulary[piece] = id;
  }
  return BytePairModel::Create(std::move(vocabulary), merges, std::move(options));
}

// A token of tokenizer_config.json: a string, or an object with one. -1: it names none that there is.
int32_t NamedToken(const json& config, const char* field, const TokenizerParts& parts) {
  if (!config.is_object() || !config.contains(field)) return -1;
  const json& value = config[field];
  const std::string name = value.is_string()   ? value.get<std::string>()
                           : value.is_object() ? value.value("content", std::string())
                                               : std::string();
  for (const AddedToken& token : parts.added) {
    if (token.content == name) return token.id;
  }
  const auto found = parts.model.vocabulary().find(name);
  return found == parts.model.vocabulary().end() ? -1 : found->second;
}

absl::StatusOr<TokenizerParts> ParseTokenizer(const json& root, const json& config) {
  const auto part = [&](const char* name) { return root.contains(name) ? root[name] : json(); };
  TokenizerParts parts;
  TESSERA_ASSIGN_OR_RETURN(parts.model, ParseModel(root.at("model")));
  TESSERA_ASSIGN_OR_RETURN(parts.normalizer, ParseNormalizer(part("normalizer")));
  TESSERA_ASSIGN_OR_RETURN(parts.pre_tokenizer, ParsePreTokenizer(part("pre_tokenizer")));
  TESSERA_ASSIGN_OR_RETURN(parts.decoder, ParseDecoder(part("decoder")));
  TESSERA_ASSIGN_OR_RETURN(parts.frame, ParseFrame(part("post_processor")));
  TESSERA_ASSIGN_OR_RETURN(parts.added, ParseAddedTokens(part("added_tokens")));
  parts.begin = NamedToken(config, "bos_token", parts);
  parts.end = NamedToken(config, "eos_token", parts);
  return parts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizerJson(const std::string& folder) {
  TokenizerFiles files;
  TESSERA_ASSIGN_OR_RETURN(files.tokenizer, ReadTextFile(folder + "/tokenizer.json"));
  json config;
  if (auto text = ReadTextFile(folder + "/tokenizer_config.json"); text.ok()) {
    files.config = *std::move(text);
    config = json::parse(files.config, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object())
      return absl::DataLossError(absl::StrCat(folder, "/tokenizer_config.json: no JSON object"));
  }
  try {
    absl::StatusOr<TokenizerParts> parts = ParseTokenizer(json::parse(files.tokenizer), config);
    if (!parts.ok()) {
      return absl::Status(parts.status().code(), absl::StrCat(folder, ": ", parts.status().message()));
    }
    return std::make_unique<JsonTokenizer>(*std::move(parts), std::move(files));
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat(folder, "/tokenizer.json: ", error.what()));
  }
}

}  // namespace tessera::worker
