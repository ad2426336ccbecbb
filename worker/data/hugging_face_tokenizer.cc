#include "worker/data/hugging_face_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/data/text_file.h"
#include "worker/data/text_split.h"

namespace tessera::worker {
namespace {

using nlohmann::ordered_json;

constexpr int kSpecialPieces = 3;

ordered_json Special(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

ordered_json BpeModel(ordered_json vocabulary, ordered_json merges, bool byte_fallback) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", "<unk>"},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", true},
          {"byte_fallback", byte_fallback},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

ordered_json Config() {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},
          {"bos_token", "<s>"},
          {"eos_token", "</s>"},
          {"unk_token", "<unk>"},
          {"clean_up_tokenization_spaces", false}};
}

absl::Status Save(const std::string& folder, const ordered_json& tokenizer, const ordered_json& config) {
  TESSERA_RETURN_IF_ERROR(WriteTextFile(folder + "/tokenizer.json", tokenizer.dump(1) + "\n"));
  return WriteTextFile(folder + "/tokenizer_config.json", config.dump(2) + "\n");
}

// Every way to put a learnt piece together from two others, in the order of
// learning: the byte-pair encoder joins the earliest first.
ordered_json Merges(const std::vector<std::string>& pieces) {
  std::unordered_map<std::string, int> ids;
  for (size_t i = 0; i < pieces.size(); ++i) ids.emplace(pieces[i], static_cast<int>(i));
  ordered_json merges = ordered_json::array();
  for (size_t i = kSpecialPieces; i < pieces.size(); ++i) {
    const std::string& piece = pieces[i];
    if (piece.size() == 6 && absl::StartsWith(piece, "<0x")) continue;  // a byte
    std::vector<std::pair<int, int>> splits;
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if ((static_cast<unsigned char>(piece[cut]) & 0xc0) == 0x80) continue;  // inside a character
      const auto left = ids.find(piece.substr(0, cut)), right = ids.find(piece.substr(cut));
      if (left != ids.end() && right != ids.end()) splits.emplace_back(left->second, right->second);
    }
    std::sort(splits.begin(), splits.end());
    for (const auto& [left, right] : splits) merges.push_back({pieces[left], pieces[right]});
  }
  return merges;
}

}  // namespace

absl::Status SaveHuggingFaceByteTokenizer(const std::string& folder) {
  ordered_json vocabulary = ordered_json::object(), added = ordered_json::array();
  for (const std::string& character : ByteAlphabet()) vocabulary[character] = vocabulary.size();
  for (const char* special : {"<s>", "</s>", "<pad>", "<unk>"}) {
    added.push_back(Special(static_cast<int>(vocabulary.size()), special));
    vocabulary[special] = vocabulary.size();
  }
  const ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const ordered_json tokenizer = {{"version", "1.0"},
                                  {"truncation", nullptr},
                                  {"padding", nullptr},
                                  {"added_tokens", std::move(added)},
                                  {"normalizer", nullptr},
                                  {"pre_tokenizer", byte_level},
                                  {"post_processor", nullptr},
                                  {"decoder", byte_level},
                                  {"model", BpeModel(std::move(vocabulary), ordered_json::array(), false)}};
  ordered_json config = Config();
  config["pad_token"] = "<pad>";
  return Save(folder, tokenizer, config);
}

absl::Status SaveHuggingFaceBpeTokenizer(const std::string& folder, const std::vector<std::string>& pieces) {
  ordered_json vocabulary = ordered_json::object(), added = ordered_json::array();
  for (size_t i = 0; i < pieces.size(); ++i) {
    vocabulary[pieces[i]] = i;
    if (i < kSpecialPieces) added.push_back(Special(static_cast<int>(i), pieces[i]));
  }
  const auto replace = [](const char* from, const char* to) {
    return ordered_json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  constexpr char kSpace[] = "\xe2\x96\x81";  // U+2581
  const ordered_json decoder = {
      {"type", "Sequence"},
      {"decoders",
       ordered_json::array({replace(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}})}};
  const ordered_json tokenizer = {{"version", "1.0"},
                                  {"truncation", nullptr},
                                  {"padding", nullptr},
                                  {"added_tokens", std::move(added)},
                                  {"normalizer", replace(" ", kSpace)},
                                  {"pre_tokenizer", nullptr},
                                  {"post_processor", nullptr},
                                  {"decoder", decoder},
                                  {"model", BpeModel(std::move(vocabulary), Merges(pieces), true)}};
  return Save(folder, tokenizer, Config());
}

}  // namespace tessera::worker
