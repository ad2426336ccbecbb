#include "scheduler/plan/node_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/plan/rank_order.h"

namespace tessera::plan {
namespace {

constexpr int kMostChosenNodes = 4096;

absl::Status Check(const std::vector<NodeOffer>& nodes, const std::vector<NodeLink>& links, int workers) {
  if (nodes.empty() || nodes.size() > kMostChosenNodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("nodes: ", nodes.size(), "; must be from 1 to ", kMostChosenNodes));
  }
  if (workers < 1)
    return absl::InvalidArgumentError(absl::StrCat("workers: ", workers, "; must be at least 1"));
  for (const NodeOffer& node : nodes) {
    if (node.free_bytes >= 0 && node.cores >= 0 && std::isfinite(node.cores)) continue;
    return absl::InvalidArgumentError(absl::StrCat("node '", node.name, "': ", node.free_bytes, " bytes and ",
                                                   node.cores, " cores; must be 0 (unknown) or more"));
  }
  const auto count = static_cast<int>(nodes.size());
  for (const NodeLink& link : links) {
    if (link.a < 0 || link.a >= count || link.b < 0 || link.b >= count || link.a == link.b) {
      return absl::InvalidArgumentError(
          absl::StrCat("a link between nodes ", link.a, " and ", link.b, "; there are ", count));
    }
    for (double figure : {link.round_trip_seconds, link.bytes_per_second}) {
      if (std::isfinite(figure) && figure >= 0) continue;
      return absl::InvalidArgumentError(absl::StrCat("the link from '", nodes[link.a].name, "' to '",
                                                     nodes[link.b].name, "' has the figure ", figure,
                                                     "; must be 0 (unknown) or more and finite"));
    }
  }
  return absl::OkStatus();
}

// Unknown figures become the least known; all 1 when none is. Relative to the largest.
std::vector<double> Relative(std::vector<double> figures) {
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  for (double figure : figures) {
    if (figure > 0) least = std::min(least, figure);
    most = std::max(most, figure);
  }
  for (double& figure : figures) figure = most > 0 ? (figure > 0 ? figure : least) / most : 1;
  return figures;
}

class LinkTable {
 public:
  LinkTable(size_t nodes, const std::vector<NodeLink>& links)
      : nodes_(nodes), seconds_(nodes * nodes, 0.0), rates_(nodes * nodes, 0.0) {
    for (const NodeLink& link : links) {
      for (const size_t at : {At(link.a, link.b), At(link.b, link.a)}) {
        seconds_[at] = link.round_trip_seconds;
        rates_[at] = link.bytes_per_second;
      }
    }
  }
  double seconds(int a, int b) const { return seconds_[At(a, b)]; }
  double rate(int a, int b) const { return rates_[At(a, b)]; }
  // The median of its known links; 0: none is.
  double Typical(int node) const {
    std::vector<double> known;
    for (size_t peer = 0; peer < nodes_; ++peer) {
      if (rate(node, static_cast<int>(peer)) > 0) known.push_back(rate(node, static_cast<int>(peer)));
    }
    if (known.empty()) return 0;
    std::sort(known.begin(), known.end());
    return known[(known.size() - 1) / 2];
  }

 private:
  size_t At(int a, int b) const { return static_cast<size_t>(a) * nodes_ + static_cast<size_t>(b); }

  size_t nodes_;
  std::vector<double> seconds_;
  std::vector<double> rates_;
};

// By node: how many of the workers.
std::vector<int> Distribute(const std::vector<NodeOffer>& nodes, const LinkTable& links, int workers) {
  std::vector<double> memory, cores, rates;
  for (size_t n = 0; n < nodes.size(); ++n) {
    memory.push_back(static_cast<double>(nodes[n].free_bytes));
    cores.push_back(nodes[n].cores);
    rates.push_back(links.Typical(static_cast<int>(n)));
  }
  memory = Relative(std::move(memory));
  cores = Relative(std::move(cores));
  rates = Relative(std::move(rates));
  std::vector<int> counts(nodes.size(), 0);
  for (int w = 0; w < workers; ++w) {
    size_t best = 0;
    const auto left = [&](size_t n) { return std::min({memory[n], cores[n], rates[n]}) / (counts[n] + 1); };
    for (size_t n = 1; n < nodes.size(); ++n) {
      if (left(n) > left(best)) best = n;
    }
    ++counts[best];
  }
  return counts;
}

absl::StatusOr<std::vector<int>> Tour(const std::vector<int>& used, const LinkTable& links) {
  std::vector<double> seconds;
  for (int a : used) {
    for (int b : used) seconds.push_back(a == b ? 0 : links.seconds(a, b));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int> order,
                           OrderByRoundTrip(static_cast<int>(used.size()), seconds));
  std::vector<int> tour;
  for (int place : order) tour.push_back(used[place]);
  return tour;
}

}  // namespace

absl::StatusOr<std::vector<RankPlace>> ChooseNodes(const std::vector<NodeOffer>& nodes,
                                                   const std::vector<NodeLink>& links, int workers) {
  TESSERA_RETURN_IF_ERROR(Check(nodes, links, workers));
  const LinkTable table(nodes.size(), links);
  const std::vector<int> counts = Distribute(nodes, table, workers);
  std::vector<int> used;
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (counts[n] > 0) used.push_back(static_cast<int>(n));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int> tour, Tour(used, table));
  int64_t least_bytes = 0;
  for (const NodeOffer& node : nodes) {
    if (node.free_bytes > 0 && (least_bytes == 0 || node.free_bytes < least_bytes))
      least_bytes = node.free_bytes;
  }
  std::vector<RankPlace> places;
  const size_t n = tour.size();
  for (size_t t = 0; t < n; ++t) {
    const int node = tour[t];
    const int count = counts[node];
    double rate = 0;
    for (const int peer : {tour[(t + 1) % n], tour[(t + n - 1) % n]}) {
      const double known = peer == node ? 0 : table.rate(node, peer);
      if (known > 0 && (rate == 0 || known < rate)) rate = known;
    }
    if (rate == 0 && n > 1) rate = table.Typical(node);
    const int64_t bytes = nodes[node].free_bytes > 0 ? nodes[node].free_bytes : least_bytes;
    const RankPlace place{.node = node,
                          .free_bytes = bytes / count,
                          .cores = nodes[node].cores / count,
                          .bytes_per_second = rate / count};
    places.insert(places.end(), static_cast<size_t>(count), place);
  }
  return places;
}

}  // namespace tessera::plan
