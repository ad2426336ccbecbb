// cyclic: a unit with r holders lies on r neighbours of the ring of workers. The
// first windows start at 0, 1, ..., N - 1, which is balanced and connected; for the
// U mod N units that remain, the start positions are searched. Made for equal blocks and
// equal workers; the seed does not matter.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/plan/mask_scheme.h"

namespace tessera::plan {
namespace {

std::vector<int> Window(int start, int length, int workers) {
  std::vector<int> holders(length);
  for (int i = 0; i < length; ++i) holders[i] = (start + i) % workers;
  std::sort(holders.begin(), holders.end());
  return holders;
}

// stride 0: windows end to end, which keeps loads within one unit of each other.
struct Candidate {
  int stride = 0;
  bool restart = false;  // each holder count starts at rank 0 again
};

Assignment Lay(const SchemeInput& input, const std::map<int, std::vector<int>>& units_by_holders,
               Candidate c) {
  Assignment assignment(input.units());
  const int n = input.workers;
  int position = 0;  // of the next remaining window
  for (const auto& [holders, units] : units_by_holders) {
    const int count = static_cast<int>(units.size());
    const int in_full_rounds = count - count % n;
    if (c.restart) position = 0;
    for (int i = 0; i < count; ++i) {
      int start = i % n;
      if (i >= in_full_rounds) {
        start = position;
        position = (position + (c.stride == 0 ? holders : c.stride)) % n;
      }
      assignment[units[i]] = Window(start, holders, n);
    }
  }
  return assignment;
}

double LoadSpread(const SchemeInput& input, const Assignment& assignment) {
  std::vector<double> loads(input.workers, 0.0);
  for (int u = 0; u < input.units(); ++u) {
    for (int w : assignment[u]) loads[w] += input.loads[u];
  }
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  return *most - *least;
}

int Components(int workers, const Assignment& assignment) {
  std::vector<int> parent(workers);
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int w) {
    while (parent[w] != w) w = parent[w] = parent[parent[w]];
    return w;
  };
  int components = workers;
  for (const std::vector<int>& holders : assignment) {
    for (int w : holders) {
      const int a = root(holders.front());
      const int b = root(w);
      if (a != b) --components;
      parent[b] = a;
    }
  }
  return components;
}

class CyclicScheme : public MaskScheme {
 public:
  Scheme scheme() const override { return Scheme::kCyclic; }
  absl::string_view name() const override { return "cyclic"; }

  absl::StatusOr<Assignment> Assign(const SchemeInput& input) const override {
    if (!input.equal_workers) {
      return absl::InvalidArgumentError(
          "scheme: 'cyclic' gives all workers equal loads, but their speeds, memories or links differ; "
          "use 'placed'");
    }
    std::map<int, std::vector<int>> units_by_holders;
    for (int u = 0; u < input.units(); ++u) units_by_holders[input.holders[u]].push_back(u);

    // Even loads first, then a connected graph, then few communicators.
    using Quality = std::tuple<double, int, size_t>;
    Assignment best;
    Quality best_quality;
    for (int stride = 0; stride < input.workers; ++stride) {
      for (bool restart : {true, false}) {
        Assignment assignment = Lay(input, units_by_holders, {stride, restart});
        const std::set<std::vector<int>> sets(assignment.begin(), assignment.end());
        const Quality quality{LoadSpread(input, assignment), Components(input.workers, assignment),
                              sets.size()};
        if (!best.empty() && quality >= best_quality) continue;
        best = std::move(assignment);
        best_quality = quality;
      }
    }
    return best;
  }
};

TESSERA_REGISTER_MASK_SCHEME(CyclicScheme);

}  // namespace
}  // namespace tessera::plan
