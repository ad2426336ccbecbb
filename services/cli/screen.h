// A few lines at the end of a terminal that are redrawn in place. One thread.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace tessera::cli {

class Screen {
 public:
  explicit Screen(std::ostream* out) : out_(out) {}
  // Replaces what the last Draw wrote; more than `height` - 1 lines are cut.
  void Draw(const std::vector<std::string>& lines, int height);
  // What stands there stays; the next Draw begins below it.
  void Keep() { drawn_ = 0; }

 private:
  std::ostream* out_;
  size_t drawn_ = 0;
};

}  // namespace tessera::cli
