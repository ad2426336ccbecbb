// Where a condition that changes once in an interval changes.
#pragma once

#include <cstdint>

namespace tessera::plan {

struct Edge {
  double below = 0;  // the condition does not hold here, or this is the lower end
  double from = 0;   // it holds here, or this is the upper end
};

// `holds(x)` of doubles, false below some x in (low, high] and true from there on; neither end is asked. As
// near as doubles come, or 2^-200 of the interval.
template <typename Holds>
Edge Bisect(double low, double high, const Holds& holds) {
  Edge edge{low, high};
  for (int i = 0; i < 200; ++i) {
    const double middle = edge.below + (edge.from - edge.below) / 2;
    if (middle == edge.below || middle == edge.from) break;
    (holds(middle) ? edge.from : edge.below) = middle;
  }
  return edge;
}

// The largest value in [low, high) that fits, where what fits at some value fits below it; `low` does,
// unasked.
template <typename Fits>
int64_t LargestFitting(int64_t low, int64_t high, const Fits& fits) {
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace tessera::plan
