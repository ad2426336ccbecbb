#include "services/cli/screen.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera::cli {

void Screen::Draw(const std::vector<std::string>& lines, int height) {
  std::string text = "\r";
  if (drawn_ > 0) absl::StrAppend(&text, "\033[", drawn_, "A");
  // A line that scrolled out of the terminal could not be reached again.
  const size_t shown = std::min(lines.size(), static_cast<size_t>(std::max(1, height - 1)));
  for (size_t i = 0; i < shown; ++i) absl::StrAppend(&text, "\033[2K", lines[i], "\n");
  text += "\033[J";
  *out_ << text << std::flush;
  drawn_ = shown;
}

}  // namespace tessera::cli
