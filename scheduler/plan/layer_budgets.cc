#include "scheduler/plan/layer_budgets.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/plan/bisection.h"

namespace tessera::plan {
namespace {

constexpr double kLeastImportance = 1e-6;  // of the mean per element
constexpr double kRounding = 1e-9;         // a floor of 0.3 of 10 elements is 3 of them

struct Bounds {
  int64_t low = 0;
  int64_t high = 0;
};

absl::StatusOr<std::vector<Bounds>> BoundsOf(absl::Span<const LayerDemand> layers) {
  std::vector<Bounds> bounds;
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerDemand& layer = layers[l];
    if (!(layer.floor >= 0 && layer.floor <= layer.ceiling && layer.ceiling <= 1)) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", l, ": floor ", layer.floor, " and ceiling ",
                                                     layer.ceiling,
                                                     " must satisfy 0 <= floor <= ceiling <= 1"));
    }
    if (!(layer.importance >= 0) || !std::isfinite(layer.importance)) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", l, ": importance ", layer.importance, " must be finite and not negative"));
    }
    const auto n = static_cast<double>(layer.elements);
    const int64_t least = std::min<int64_t>(layer.elements, 1);
    Bounds bound;
    bound.low =
        std::clamp<int64_t>(std::llround(std::ceil(layer.floor * n - kRounding)), least, layer.elements);
    bound.high = std::clamp<int64_t>(std::llround(std::floor(layer.ceiling * n + kRounding)), bound.low,
                                     layer.elements);
    bounds.push_back(bound);
  }
  return bounds;
}

std::vector<double> WeightsOf(absl::Span<const LayerDemand> layers) {
  double elements = 0, importance = 0;
  for (const LayerDemand& layer : layers) {
    elements += static_cast<double>(layer.elements);
    importance += layer.importance;
  }
  std::vector<double> weights;
  for (const LayerDemand& layer : layers) {
    const double least =
        static_cast<double>(layer.elements) / elements * (importance > 0 ? importance * kLeastImportance : 1);
    weights.push_back(std::max(layer.importance, least));
  }
  return weights;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> LayerBudgets(double density, absl::Span<const LayerDemand> layers) {
  if (!(density > 0 && density <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("density ", density, " must be above 0 and at most 1"));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Bounds> bounds, BoundsOf(layers));
  int64_t elements = 0, lowest = 0, highest = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    elements += layers[l].elements;
    lowest += bounds[l].low;
    highest += bounds[l].high;
  }
  const int64_t total = std::llround(density * static_cast<double>(elements));
  if (total < lowest || total > highest) {
    const double possible =
        static_cast<double>(total < lowest ? lowest : highest) / static_cast<double>(elements);
    return absl::InvalidArgumentError(
        absl::StrCat("density ", density, " keeps ", total, " of ", elements, " elements, and the layers' ",
                     total < lowest ? "floors ask for " : "ceilings allow ",
                     total < lowest ? lowest : highest, "; use density ", possible, " or other limits"));
  }

  const std::vector<double> weights = WeightsOf(layers);
  std::vector<int64_t> kept(layers.size());
  // Everybody's budget grows with the level: bisect it.
  const auto fill = [&](double level) {
    int64_t sum = 0;
    for (size_t l = 0; l < kept.size(); ++l) {
      const double wish = std::min(level * weights[l], static_cast<double>(bounds[l].high));
      kept[l] = std::clamp(static_cast<int64_t>(wish), bounds[l].low, bounds[l].high);
      sum += kept[l];
    }
    return sum;
  };
  double high = 1;
  for (size_t l = 0; l < kept.size(); ++l) {
    if (weights[l] > 0) high = std::max(high, static_cast<double>(bounds[l].high + 1) / weights[l]);
  }
  const Edge edge = Bisect(0, high, [&](double level) { return fill(level) > total; });
  // The few elements that are left between two neighbouring levels go to whom the next level would give them.
  for (int64_t left = total - fill(edge.below); left > 0; --left) {
    size_t next = kept.size();
    double soonest = 0;
    for (size_t l = 0; l < kept.size(); ++l) {
      if (kept[l] == bounds[l].high) continue;
      const double level = static_cast<double>(kept[l] + 1) / weights[l];
      if (next == kept.size() || level < soonest) {
        next = l;
        soonest = level;
      }
    }
    ++kept[next];
  }
  return kept;
}

int64_t KeptOfPart(int64_t elements, int64_t kept, int64_t begin, int64_t end) {
  if (elements == 0) return 0;
  const auto before = [&](int64_t position) {
    return static_cast<int64_t>(static_cast<__int128>(position) * kept / elements);
  };
  return before(end) - before(begin);
}

int64_t KeptOfPiece(int64_t elements, int64_t kept, int64_t begin, int64_t end, double share) {
  const int64_t part = KeptOfPart(elements, kept, begin, end);
  if (kept >= elements || share >= 1) return std::max<int64_t>(1, part);
  return std::max<int64_t>(1, std::llround(share * static_cast<double>(part)));
}

}  // namespace tessera::plan
