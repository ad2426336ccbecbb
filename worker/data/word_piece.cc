#include "worker/data/word_piece.h"

#include <utf8proc.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker/data/text_file.h"

namespace tessera::worker {
namespace {

constexpr size_t kLongestWord = 100;  // characters; a longer one is unknown

bool IsPunctuation(int32_t c) {
  // Of ASCII everything that is neither letter nor digit, as BERT has it.
  if ((c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126))
    return true;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    default:
      return false;
  }
}

bool IsSpace(int32_t c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || utf8proc_category(c) == UTF8PROC_CATEGORY_ZS;
}

bool IsControl(int32_t c) {
  const auto category = utf8proc_category(c);
  return c == 0 || c == 0xfffd || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CS ||
         category == UTF8PROC_CATEGORY_CO;
}

bool IsCjk(int32_t c) {
  constexpr std::pair<int32_t, int32_t> kBlocks[] = {
      {0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
      {0x2b740, 0x2b81f}, {0x2b820, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [&](const auto& block) { return c >= block.first && c <= block.second; });
}

void Append(int32_t c, std::string* text) {
  uint8_t bytes[4];
  const auto count = utf8proc_encode_char(c, bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

// Calls on each character; bytes that are none are left out.
template <typename Function>
void EachCharacter(std::string_view text, const Function& function) {
  while (!text.empty()) {
    int32_t c = -1;
    const auto used = utf8proc_iterate(reinterpret_cast<const uint8_t*>(text.data()),
                                       static_cast<utf8proc_ssize_t>(text.size()), &c);
    if (used > 0) function(c);
    text.remove_prefix(used > 0 ? static_cast<size_t>(used) : 1);
  }
}

// Canonically decomposed, without marks, in lower case.
void AppendFolded(int32_t c, std::string* text) {
  int32_t parts[8];
  int boundary = 0;
  const auto count = utf8proc_decompose_char(c, parts, 8, UTF8PROC_DECOMPOSE, &boundary);
  for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(count, 8); ++i) {
    if (utf8proc_category(parts[i]) != UTF8PROC_CATEGORY_MN) Append(utf8proc_tolower(parts[i]), text);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<WordPiece>> WordPiece::Open(const std::string& folder) {
  const std::string path = folder + "/vocab.txt";
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::unique_ptr<WordPiece> opened(new WordPiece);
  int32_t next = 0;
  for (const absl::string_view part : absl::StrSplit(text, '\n')) {
    std::string line(part);
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() && next > 0) continue;
    opened->pieces_.emplace(std::move(line), next++);
  }
  for (const auto& [name, id] : {std::pair<const char*, int32_t*>{"[CLS]", &opened->classify_},
                                 {"[SEP]", &opened->separator_},
                                 {"[PAD]", &opened->padding_},
                                 {"[MASK]", &opened->mask_},
                                 {"[UNK]", &opened->unknown_}}) {
    const auto found = opened->pieces_.find(name);
    if (found == opened->pieces_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": has no ", name, "; is it a vocabulary of BERT?"));
    }
    *id = found->second;
  }
  if (const auto config = ReadTextFile(folder + "/tokenizer_config.json"); config.ok()) {
    const auto json = nlohmann::json::parse(*config, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("do_lower_case")) opened->lower_ = json["do_lower_case"] != false;
  }
  return opened;
}

std::vector<int32_t> WordPiece::Encode(std::string_view text) const {
  std::vector<int32_t> ids;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) AppendWord(word, &ids);
    word.clear();
  };
  EachCharacter(text, [&](int32_t c) {
    if (IsSpace(c)) return end_word();
    if (IsControl(c)) return;
    const bool alone = IsPunctuation(c) || IsCjk(c);
    if (alone) end_word();
    if (lower_) {
      AppendFolded(c, &word);
    } else {
      Append(c, &word);
    }
    if (alone) end_word();
  });
  end_word();
  return ids;
}

void WordPiece::AppendWord(std::string_view word, std::vector<int32_t>* ids) const {
  std::vector<size_t> starts;  // of characters
  for (size_t i = 0; i < word.size(); ++i) {
    if ((static_cast<unsigned char>(word[i]) & 0xc0) != 0x80) starts.push_back(i);
  }
  starts.push_back(word.size());
  if (starts.size() - 1 > kLongestWord) return ids->push_back(unknown_);
  std::vector<int32_t> pieces;
  for (size_t begin = 0; begin + 1 < starts.size();) {
    size_t end = starts.size() - 1;
    for (; end > begin; --end) {
      std::string piece = begin > 0 ? "##" : "";
      piece.append(word.substr(starts[begin], starts[end] - starts[begin]));
      if (const auto found = pieces_.find(piece); found != pieces_.end()) {
        pieces.push_back(found->second);
        break;
      }
    }
    if (end == begin) return ids->push_back(unknown_);
    begin = end;
  }
  ids->insert(ids->end(), pieces.begin(), pieces.end());
}

}  // namespace tessera::worker
