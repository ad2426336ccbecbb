// Text that fits: columns, bars, colours. Pure; widths are terminal columns of UTF-8 text.
#pragma once

#include <string>
#include <vector>
#include "absl/strings/string_view.h"

namespace tessera::cli {

struct Style {
  bool color = false;
  bool unicode = true;  // false: ASCII only
};

enum class Ink { kPlain, kBold, kDim, kRed, kGreen, kYellow, kCyan };

// `text` between escape sequences, or `text` itself without colour.
std::string Paint(absl::string_view text, Ink ink, const Style& style);

// Columns that `text` takes on a terminal; escape sequences take none.
int DisplayWidth(absl::string_view text);

// Cut to `width` columns, the last being an ellipsis if anything was cut. Escape
// sequences are kept and closed.
std::string Fit(absl::string_view text, int width, const Style& style);

// Words of `text` in lines of at most `width` columns, each after `indent`.
std::vector<std::string> Wrap(absl::string_view text, int width, absl::string_view indent);

// "█████▌░░░" of exactly `width` columns; ratio is clamped to 0..1.
std::string Bar(double ratio, int width, const Style& style);

struct Column {
  std::string header;
  bool right = false;  // aligned
  int priority = 0;    // the largest goes first when the table is too wide; 0 stays
};

// Header and rows, two spaces between columns. Columns leave by priority until
// `width` is kept (0: unlimited); what is still too long is cut. Each row has as
// many cells as there are columns.
std::vector<std::string> RenderTable(const std::vector<Column>& columns,
                                     const std::vector<std::vector<std::string>>& rows, int width,
                                     const Style& style);

}  // namespace tessera::cli
