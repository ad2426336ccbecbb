// YAML or JSON text as a tree of keys and values with line numbers, before any
// schema is known. Stricter than YAML: one document, no duplicate keys, no aliases.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/tessera/v1/violation.h"

namespace tessera::spec {

inline constexpr int kMaxTextDepth = 32;
inline constexpr size_t kMaxTextViolations = 100;  // more say nothing new

struct Tree {
  enum class Kind { kNull, kPlain, kQuoted, kNumber, kBool, kMap, kList };
  Kind kind = Kind::kNull;
  int line = 0;             // from 1; 0 = unknown (JSON)
  std::string key;          // as written, when inside a map
  std::string text;         // of scalars. kPlain: unquoted YAML of any type
  std::vector<Tree> items;  // of maps and lists

  bool IsScalar() const { return kind != Kind::kNull && kind != Kind::kMap && kind != Kind::kList; }
  Tree* Find(std::string_view name);
};

// Appends what is wrong with the text itself to `violations`; the tree is then of no use.
Tree ParseText(std::string_view text, std::vector<Violation>* violations);

// The value as an error message shows it: cut and quoted, "a mapping", "a list".
std::string Display(const Tree& tree);

}  // namespace tessera::spec
