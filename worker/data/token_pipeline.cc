#include "worker/data/token_pipeline.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "worker/data/text_split.h"

namespace tessera::worker {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

std::string TypeOf(const json& part) { return part.at("type").get<std::string>(); }

absl::Status Unknown(const char* what, const std::string& name) {
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.json: ", what, " '", name,
                   "' is not known; only those of byte-level and SentencePiece-style "
                   "BPE are"));
}

// {"String": "x"} as an expression that matches just that, or {"Regex": "..."}.
absl::StatusOr<std::shared_ptr<const Pattern>> ParsePattern(const json& pattern) {
  std::string expression;
  if (pattern.contains("Regex")) {
    expression = pattern.at("Regex");
  } else {
    for (const char c : pattern.at("String").get<std::string>()) {
      if (static_cast<unsigned char>(c) < 0x80 && !isalnum(c)) expression.push_back('\\');
      expression.push_back(c);
    }
  }
  TESSERA_ASSIGN_OR_RETURN(auto compiled, Pattern::Compile(expression));
  return std::shared_ptr<const Pattern>(std::move(compiled));
}

std::string ReplaceAll(const std::string& text, const Pattern& pattern, const std::string& content) {
  std::string replaced;
  size_t end = 0;
  for (const auto& [first, last] : pattern.FindAll(text)) {
    replaced.append(text, end, first - end).append(content);
    end = last;
  }
  return replaced.append(text, end);
}

absl::StatusOr<PreTokenizer> SplitBy(const json& pattern, const std::string& behavior, bool invert) {
  static const auto* const kBehaviors = new std::unordered_map<std::string, SplitBehavior>{
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"Contiguous", SplitBehavior::kContiguous},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext}};
  const auto found = kBehaviors->find(behavior);
  if (found == kBehaviors->end()) return Unknown("pre_tokenizer Split's behavior", behavior);
  TESSERA_ASSIGN_OR_RETURN(const auto compiled, ParsePattern(pattern));
  return PreTokenizer([compiled, how = found->second, invert](const Words& words, bool) {
    Words split;
    for (const std::string& word : words) {
      for (std::string& part : Split(word, *compiled, how, invert)) split.push_back(std::move(part));
    }
    return split;
  });
}

// GPT-2's: contractions, then letters, numbers or other characters with a space before them, then white space
// of which the last one is left to the word after it.
constexpr char kByteLevelWords[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

absl::StatusOr<PreTokenizer> ByteLevel(const json& part) {
  PreTokenizer split;
  if (part.value("use_regex", true)) {
    TESSERA_ASSIGN_OR_RETURN(split, SplitBy({{"Regex", kByteLevelWords}}, "Isolated", false));
  }
  return PreTokenizer([split, prefix = part.value("add_prefix_space", true)](Words words, bool at_start) {
    for (std::string& word : words) {
      if (prefix && !absl::StartsWith(word, " ")) word.insert(0, 1, ' ');
    }
    if (split) words = split(std::move(words), at_start);
    for (std::string& word : words) {
      std::string printable;
      for (const char byte : word) printable += ByteAlphabet()[static_cast<unsigned char>(byte)];
      word = std::move(printable);
    }
    return words;
  });
}

// SentencePiece's: spaces become a mark, and words begin with one.
absl::StatusOr<PreTokenizer> Metaspace(const json& part) {
  const std::string mark = part.at("replacement");
  const std::string scheme =
      part.value("prepend_scheme", part.value("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "never" && scheme != "first") {
    return Unknown("pre_tokenizer Metaspace's prepend_scheme", scheme);
  }
  PreTokenizer split;
  if (part.value("split", true)) {
    TESSERA_ASSIGN_OR_RETURN(split, SplitBy({{"String", mark}}, "MergedWithNext", false));
  }
  return PreTokenizer([=](Words words, bool at_start) {
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = absl::StrReplaceAll(words[i], {{" ", mark}});
      const bool prepend = scheme == "always" || (scheme == "first" && at_start && i == 0);
      if (prepend && !absl::StartsWith(words[i], mark)) words[i].insert(0, mark);
    }
    return split ? split(std::move(words), at_start) : words;
  });
}

}  // namespace

absl::StatusOr<Normalizer> ParseNormalizer(const json& part) {
  if (part.is_null()) return Normalizer([](std::string text) { return text; });
  const std::string type = TypeOf(part);
  if (type == "Sequence") {
    std::vector<Normalizer> steps;
    for (const json& step : part.at("normalizers")) {
      TESSERA_ASSIGN_OR_RETURN(Normalizer parsed, ParseNormalizer(step));
      steps.push_back(std::move(parsed));
    }
    return Normalizer([steps](std::string text) {
      for (const Normalizer& step : steps) text = step(std::move(text));
      return text;
    });
  }
  if (type == "Prepend") {
    return Normalizer([prefix = part.at("prepend").get<std::string>()](const std::string& text) {
      return text.empty() ? text : prefix + text;
    });
  }
  if (type == "Replace") {
    TESSERA_ASSIGN_OR_RETURN(const auto pattern, ParsePattern(part.at("pattern")));
    return Normalizer([pattern, content = part.at("content").get<std::string>()](const std::string& text) {
      return ReplaceAll(text, *pattern, content);
    });
  }
  return Unknown("normalizer", type);
}

absl::StatusOr<PreTokenizer> ParsePreTokenizer(const json& part) {
  if (part.is_null()) return PreTokenizer([](Words words, bool) { return words; });
  const std::string type = TypeOf(part);
  if (type == "Sequence") {
    std::vector<PreTokenizer> steps;
    for (const json& step : part.at("pretokenizers")) {
      TESSERA_ASSIGN_OR_RETURN(PreTokenizer parsed, ParsePreTokenizer(step));
      steps.push_back(std::move(parsed));
    }
    return PreTokenizer([steps](Words words, bool at_start) {
      for (const PreTokenizer& step : steps) words = step(std::move(words), at_start);
      return words;
    });
  }
  if (type == "ByteLevel") return ByteLevel(part);
  if (type == "Metaspace") return Metaspace(part);
  if (type == "Split") return SplitBy(part.at("pattern"), part.at("behavior"), part.value("invert", false));
  if (type == "Digits") {
    const bool individual = part.value("individual_digits", false);
    return SplitBy({{"Regex", individual ? R"(\p{N})" : R"(\p{N}+)"}}, "Isolated", false);
  }
  return Unknown("pre_tokenizer", type);
}

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const json& list) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  for (const json& item : list) {
    AddedToken token;
    token.content = item.at("content");
    token.id = item.at("id");
    token.special = item.value("special", false);
    token.normalized = item.value("normalized", !token.special);
    token.strip_left = item.value("lstrip", false);
    token.strip_right = item.value("rstrip", false);
    token.single_word = item.value("single_word", false);
    if (token.single_word) {
      return Unknown("added token with single_word:", token.content);
    }
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

std::vector<TextPart> FindAddedTokens(std::string_view text, const std::vector<const AddedToken*>& tokens) {
  std::vector<TextPart> parts;
  const auto white = [](std::string_view character) {
    static const auto* const pattern = Pattern::Compile(R"(\s)")->release();
    return !pattern->FindAll(character).empty();
  };
  size_t begin = 0;  // of the text not yet given out
  for (size_t at = 0; at < text.size();) {
    const AddedToken* longest = nullptr;
    for (const AddedToken* token : tokens) {
      const bool longer = longest == nullptr || token->content.size() > longest->content.size();
      if (text[at] == token->content[0] && longer && text.substr(at).starts_with(token->content)) {
        longest = token;
      }
    }
    if (longest == nullptr) {
      ++at;
      continue;
    }
    size_t first = at, last = at + longest->content.size();
    if (longest->strip_left) {
      const auto before = Characters(text.substr(begin, at - begin));
      for (auto c = before.rbegin(); c != before.rend() && white(*c); ++c) first -= c->size();
    }
    if (longest->strip_right) {
      for (std::string_view c : Characters(text.substr(last))) {
        if (!white(c)) break;
        last += c.size();
      }
    }
    if (first > begin) parts.push_back({text.substr(begin, first - begin), nullptr});
    parts.push_back({text.substr(first, last - first), longest});
    begin = at = last;
  }
  if (begin < text.size()) parts.push_back({text.substr(begin), nullptr});
  return parts;
}

absl::StatusOr<Frame> ParseFrame(const json& part) {
  Frame frame;
  if (part.is_null()) return frame;
  const std::string type = TypeOf(part);
  if (type == "ByteLevel") return frame;  // concerns offsets alone
  if (type == "Sequence") {
    for (const json& step : part.at("processors")) {
      TESSERA_ASSIGN_OR_RETURN(const Frame inner, ParseFrame(step));
      frame.before.insert(frame.before.begin(), inner.before.begin(), inner.before.end());
      frame.after.insert(frame.after.end(), inner.after.begin(), inner.after.end());
    }
    return frame;
  }
  if (type != "TemplateProcessing") return Unknown("post_processor", type);
  bool after = false;
  for (const json& item : part.at("single")) {
    if (item.contains("Sequence")) {
      after = true;
      continue;
    }
    const std::string name = item.at("SpecialToken").at("id");
    for (const int32_t id : part.at("special_tokens").at(name).at("ids").get<std::vector<int32_t>>()) {
      (after ? frame.after : frame.before).push_back(id);
    }
  }
  return frame;
}

}  // namespace tessera::worker
