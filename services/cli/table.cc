#include "services/cli/table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace tessera::cli {
namespace {

constexpr absl::string_view kReset = "\033[0m";
constexpr absl::string_view kGap = "  ";

absl::string_view Escape(Ink ink) {
  switch (ink) {
    case Ink::kPlain:
      return "";
    case Ink::kBold:
      return "\033[1m";
    case Ink::kDim:
      return "\033[2m";
    case Ink::kRed:
      return "\033[31m";
    case Ink::kGreen:
      return "\033[32m";
    case Ink::kYellow:
      return "\033[33m";
    case Ink::kCyan:
      return "\033[36m";
  }
  return "";
}

// Length of the escape sequence at the start of `text`, 0 if there is none.
size_t EscapeLength(absl::string_view text) {
  if (text.size() < 2 || text[0] != '\033' || text[1] != '[') return 0;
  const size_t end = text.find_first_of("ABCDEFGHJKmhl", 2);
  return end == absl::string_view::npos ? text.size() : end + 1;
}

// Bytes of the code point at the start of `text`. All text shown here is one
// column per code point; wide scripts are not measured.
size_t CodePointLength(absl::string_view text) {
  size_t length = 1;
  while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) ++length;
  return length;
}

std::string Pad(const std::string& cell, int width, bool right) {
  const std::string space(std::max(0, width - DisplayWidth(cell)), ' ');
  return right ? space + cell : cell + space;
}

std::string Repeat(absl::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) absl::StrAppend(&out, text);
  return out;
}

}  // namespace

std::string Paint(absl::string_view text, Ink ink, const Style& style) {
  if (!style.color || ink == Ink::kPlain || text.empty()) return std::string(text);
  return absl::StrCat(Escape(ink), text, kReset);
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  while (!text.empty()) {
    if (const size_t escape = EscapeLength(text)) {
      text.remove_prefix(escape);
      continue;
    }
    text.remove_prefix(CodePointLength(text));
    ++width;
  }
  return width;
}

std::string Fit(absl::string_view text, int width, const Style& style) {
  if (width <= 0) return "";
  if (DisplayWidth(text) <= width) return std::string(text);
  const absl::string_view ellipsis = style.unicode ? "…" : "~";
  std::string out;
  bool painted = false;
  for (int left = width - 1; left > 0;) {
    if (const size_t escape = EscapeLength(text)) {
      painted = text.substr(0, escape) != kReset;
      absl::StrAppend(&out, text.substr(0, escape));
      text.remove_prefix(escape);
      continue;
    }
    const size_t length = CodePointLength(text);
    absl::StrAppend(&out, text.substr(0, length));
    text.remove_prefix(length);
    --left;
  }
  absl::StrAppend(&out, ellipsis);
  if (painted) absl::StrAppend(&out, kReset);
  return out;
}

std::vector<std::string> Wrap(absl::string_view text, int width, absl::string_view indent) {
  std::vector<std::string> lines;
  std::string line;
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    const int needed = DisplayWidth(indent) + DisplayWidth(line) + 1 + DisplayWidth(word);
    if (!line.empty() && needed > width) {
      lines.push_back(absl::StrCat(indent, line));
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  if (!line.empty()) lines.push_back(absl::StrCat(indent, line));
  return lines;
}

std::string Bar(double ratio, int width, const Style& style) {
  if (width <= 0) return "";
  ratio = std::isfinite(ratio) ? std::clamp(ratio, 0.0, 1.0) : 0.0;
  if (!style.unicode) {
    const int inside = std::max(0, width - 2);
    const int full = static_cast<int>(std::floor(ratio * inside));
    return absl::StrCat("[", Repeat("#", full), Repeat("-", inside - full), width > 1 ? "]" : "");
  }
  const int eighths = static_cast<int>(std::floor(ratio * width * 8));
  static constexpr const char* kPart[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int full = eighths / 8;
  const char* part = kPart[eighths % 8];
  return Repeat("█", full) + part + Repeat("░", width - full - (*part != '\0' ? 1 : 0));
}

std::vector<std::string> RenderTable(const std::vector<Column>& columns,
                                     const std::vector<std::vector<std::string>>& rows, int width,
                                     const Style& style) {
  std::vector<int> widths(columns.size());
  for (size_t c = 0; c < columns.size(); ++c) {
    widths[c] = DisplayWidth(columns[c].header);
    for (const auto& row : rows) {
      TESSERA_CHECK(row.size() == columns.size());
      widths[c] = std::max(widths[c], DisplayWidth(row[c]));
    }
  }
  std::vector<bool> shown(columns.size(), true);
  const auto total = [&] {
    int sum = 0, count = 0;
    for (size_t c = 0; c < columns.size(); ++c) {
      if (shown[c]) sum += widths[c], ++count;
    }
    return sum + std::max(0, count - 1) * static_cast<int>(kGap.size());
  };
  while (width > 0 && total() > width) {
    size_t victim = columns.size();
    for (size_t c = 0; c < columns.size(); ++c) {
      if (!shown[c] || columns[c].priority == 0) continue;
      if (victim == columns.size() || columns[c].priority >= columns[victim].priority) victim = c;
    }
    if (victim == columns.size()) break;
    shown[victim] = false;
  }
  const auto line = [&](auto&& cell) {
    std::string out;
    for (size_t c = 0; c < columns.size(); ++c) {
      if (!shown[c]) continue;
      absl::StrAppend(&out, out.empty() ? "" : kGap, Pad(cell(c), widths[c], columns[c].right));
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return width > 0 ? Fit(out, width, style) : out;
  };
  std::vector<std::string> lines;
  lines.push_back(Paint(line([&](size_t c) { return columns[c].header; }), Ink::kDim, style));
  for (const auto& row : rows) lines.push_back(line([&](size_t c) { return row[c]; }));
  return lines;
}

}  // namespace tessera::cli
