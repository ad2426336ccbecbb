// The groups of one rank's world, each made when it is first asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/comm/communicator.h"

namespace tessera::worker {

// Made: the world's kind of Communicator. Lives on the world's thread.
template <typename Made>
class GroupTable {
 public:
  explicit GroupTable(int rank) : rank_(rank), self_(MakeLoopbackWorld()) {}

  // See World::Group. make: (name, position of this rank among `ranks`) -> StatusOr<unique_ptr<Made>>, called
  // for groups of several ranks; one that fails is made anew when it is next asked for.
  template <typename Make>
  absl::StatusOr<Communicator*> Find(absl::Span<const int> ranks, Channel channel, const Make& make) {
    const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
    TESSERA_CHECK(mine != ranks.end() && std::is_sorted(ranks.begin(), ranks.end()));
    if (ranks.size() == 1) return &self_->all();
    std::unique_ptr<Made>& group = groups_[{channel, {ranks.begin(), ranks.end()}}];
    if (group == nullptr) {
      std::string name = absl::StrJoin(ranks, ",");
      if (channel == Channel::kWeights) name += " for weights";
      TESSERA_ASSIGN_OR_RETURN(group, make(name, static_cast<int>(mine - ranks.begin())));
    }
    return group.get();
  }

  int64_t bytes_sent() const {
    int64_t sum = 0;
    for (const auto& [ranks, group] : groups_) {
      if (group != nullptr) sum += group->bytes_sent();
    }
    return sum;
  }

 private:
  const int rank_;
  const std::unique_ptr<World> self_;  // for groups of this rank alone
  std::map<std::pair<Channel, std::vector<int>>, std::unique_ptr<Made>> groups_;
};

}  // namespace tessera::worker
