#include "worker/eval/python_text.h"

#include <clocale>
#include <cwctype>
#include <vector>

#include "worker/data/text_split.h"

namespace tessera::worker {
namespace {

// Of a valid UTF-8 character.
uint32_t CodeOf(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0xffu >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) code = code << 6 | (byte(i) & 0x3fu);
  return code;
}

void AppendUtf8(uint32_t code, std::string* text) {
  if (code < 0x80) {
    text->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    text->push_back(static_cast<char>(0xc0 | code >> 6));
    text->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code < 0x10000) {
    text->push_back(static_cast<char>(0xe0 | code >> 12));
    text->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    text->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    text->push_back(static_cast<char>(0xf0 | code >> 18));
    text->push_back(static_cast<char>(0x80 | (code >> 12 & 0x3f)));
    text->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    text->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

bool IsSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

locale_t Unicode() {
  static const locale_t locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

}  // namespace

std::string_view LeftStrip(std::string_view text) {
  for (std::string_view character : Characters(text)) {
    if (!IsSpace(CodeOf(character))) break;
    text.remove_prefix(character.size());
  }
  return text;
}

std::string_view RightStrip(std::string_view text) {
  const std::vector<std::string_view> characters = Characters(text);
  for (auto it = characters.rbegin(); it != characters.rend() && IsSpace(CodeOf(*it)); ++it) {
    text.remove_suffix(it->size());
  }
  return text;
}

std::string_view Strip(std::string_view text) { return LeftStrip(RightStrip(text)); }

std::string Capitalize(std::string_view text) {
  std::string capitalized;
  bool first = true;
  for (std::string_view character : Characters(text)) {
    const wint_t code = CodeOf(character);
    const locale_t locale = Unicode();
    AppendUtf8(locale == nullptr ? code
               : first           ? ::towupper_l(code, locale)
                                 : ::towlower_l(code, locale),
               &capitalized);
    first = false;
  }
  return capitalized;
}

int64_t CharacterCount(std::string_view text) { return static_cast<int64_t>(Characters(text).size()); }

}  // namespace tessera::worker
