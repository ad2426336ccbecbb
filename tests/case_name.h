// Names for the cases of a table, which GoogleTest allows letters, digits and underscores only.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace tessera {

// The case's number and the first words of what tells it from others: 3 and "spec.data: must be" make
// "3_spec_data_must_be".
inline std::string CaseName(size_t index, std::string_view text) {
  constexpr int kWords = 5;
  std::string name = std::to_string(index);
  bool inside = false;
  int words = 0;
  for (const char c : text) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter && !inside) {
      if (words++ == kWords) break;
      name += '_';
    }
    if (letter) name += c;
    inside = letter;
  }
  return name;
}

}  // namespace tessera
