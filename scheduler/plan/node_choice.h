// Which node each rank of a job runs on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::plan {

struct NodeOffer {
  std::string name;
  int64_t free_bytes =
      0;             // of the device that workers compute on; 0 = unknown: as the smallest that is known
  double cores = 0;  // 0 = unknown, likewise
};

// Between two nodes, by their places in the list, the worse of both directions.
struct NodeLink {
  int a = 0;
  int b = 0;
  double round_trip_seconds = 0;  // 0 = unknown, as the next
  double bytes_per_second = 0;
};

struct RankPlace {
  int node = 0;
  int64_t free_bytes = 0;       // its share of the node's; 0 = unknown
  double cores = 0;             // likewise
  double bytes_per_second = 0;  // of its way to the ranks before and after it on other nodes, shared with the
                                // others of its node; 0 = unknown, or none
};

// One place for each rank. The workers go one by one to where the share of memory, cores and link that is
// left for each worker of a node is largest, measured by what is scarcest there. Ranks follow a short tour
// through the nodes by measured round-trip times (rank_order.h), those of one node side by side: rings and
// holder sets are made of neighbours. Deterministic. InvalidArgument: no node, no worker, or a link that
// names none of the nodes or has figures that are negative or not finite.
absl::StatusOr<std::vector<RankPlace>> ChooseNodes(const std::vector<NodeOffer>& nodes,
                                                   const std::vector<NodeLink>& links, int workers);

}  // namespace tessera::plan
