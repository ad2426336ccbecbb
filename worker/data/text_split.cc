#include "worker/data/text_split.h"

#include <oniguruma.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::worker {
namespace {

using Range = std::pair<size_t, size_t>;

// Length of the character that begins here, 0 when there is none.
size_t CharacterAt(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  uint32_t code = byte(0) & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kSmallest[length] || code > 0x10ffff || surrogate ? 0 : length;
}

class OnigurumaPattern final : public Pattern {
 public:
  explicit OnigurumaPattern(regex_t* compiled) : compiled_(compiled) {}
  ~OnigurumaPattern() override { onig_free(compiled_); }

  std::vector<Range> FindAll(std::string_view text) const override {
    const auto* begin = reinterpret_cast<const OnigUChar*>(text.data());
    const OnigUChar* end = begin + text.size();
    std::vector<Range> found;
    OnigRegion* region = onig_region_new();
    for (const OnigUChar* at = begin; at < end;) {
      if (onig_search(compiled_, begin, end, at, end, region, ONIG_OPTION_NONE) < 0) break;
      const auto first = static_cast<size_t>(region->beg[0]), last = static_cast<size_t>(region->end[0]);
      if (last > first) {
        found.emplace_back(first, last);
        at = begin + last;
      } else {  // an empty match
        at = begin + last;
        at += at < end ? std::max<size_t>(1, CharacterAt(text.substr(last))) : 1;
      }
    }
    onig_region_free(region, 1);
    return found;
  }

 private:
  regex_t* compiled_;
};

// The matches and what lies between them, in order.
std::vector<std::pair<Range, bool>> Cover(std::string_view text, const Pattern& pattern, bool invert) {
  std::vector<std::pair<Range, bool>> parts;
  size_t end = 0;
  for (const Range& match : pattern.FindAll(text)) {
    if (match.first > end) parts.push_back({{end, match.first}, invert});
    parts.push_back({match, !invert});
    end = match.second;
  }
  if (end < text.size()) parts.push_back({{end, text.size()}, invert});
  return parts;
}

std::string Utf8(int code) {  // code < 0x800
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pattern>> Pattern::Compile(const std::string& expression) {
  static const int initialized = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  if (initialized != ONIG_NORMAL) return absl::InternalError("Oniguruma can't be initialised");
  regex_t* compiled = nullptr;
  OnigErrorInfo info;
  const auto* begin = reinterpret_cast<const OnigUChar*>(expression.data());
  const int code = onig_new(&compiled, begin, begin + expression.size(), ONIG_OPTION_CAPTURE_GROUP,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &info);
  if (code != ONIG_NORMAL) {
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig_error_code_to_str(message, code, &info);
    return absl::InvalidArgumentError(
        absl::StrCat("pattern '", expression, "': ", reinterpret_cast<const char*>(message)));
  }
  return std::make_unique<OnigurumaPattern>(compiled);
}

std::vector<std::string> Split(std::string_view text, const Pattern& pattern, SplitBehavior behavior,
                               bool invert) {
  std::vector<std::string> words;
  bool before_was_match = false, first = true, open = false;
  for (const auto& [range, match] : Cover(text, pattern, invert)) {
    const std::string_view part = text.substr(range.first, range.second - range.first);
    bool joins = false;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (match) continue;
        break;
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kContiguous:
        joins = !first && match == before_was_match;
        break;
      case SplitBehavior::kMergedWithPrevious:
        joins = !first && match && !before_was_match;
        break;
      case SplitBehavior::kMergedWithNext:
        joins = !first && !match && open;
        break;
    }
    if (joins) {
      words.back().append(part);
    } else {
      words.emplace_back(part);
    }
    open = match;
    before_was_match = match;
    first = false;
  }
  return words;
}

std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(1, CharacterAt(text.substr(at)));
    characters.push_back(text.substr(at, length));
    at += length;
  }
  return characters;
}

std::string ToValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterAt(text.substr(at));
    valid.append(length == 0 ? "\xef\xbf\xbd" : text.substr(at, length));
    at += std::max<size_t>(1, length);
  }
  return valid;
}

const std::vector<std::string>& ByteAlphabet() {
  // Printable Latin-1 stands for itself, the others take 256, 257, ... in order.
  static const auto* const alphabet = [] {
    auto* made = new std::vector<std::string>;
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      made->push_back(Utf8(printable ? byte : next++));
    }
    return made;
  }();
  return *alphabet;
}

}  // namespace tessera::worker
