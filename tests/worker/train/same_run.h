// Two runs that must not differ by a bit.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/worker/train/training_rig.h"

namespace tessera::worker {

// Losses, and weights and moments of every group, of every rank.
inline void ExpectSameRun(const std::vector<RankOutcome>& a, const std::vector<RankOutcome>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t rank = 0; rank < a.size(); ++rank) {
    ASSERT_TRUE(a[rank].result.ok() && b[rank].result.ok())
        << a[rank].result.status() << b[rank].result.status();
    EXPECT_EQ(a[rank].result->loss, b[rank].result->loss);
    ASSERT_FALSE(a[rank].groups.empty());
    ASSERT_EQ(a[rank].groups.size(), b[rank].groups.size());
    for (const auto& [group, flats] : a[rank].groups) {
      ASSERT_EQ(flats.size(), b[rank].groups.at(group).size());
      for (size_t i = 0; i < flats.size(); ++i) {
        EXPECT_TRUE(at::equal(flats[i], b[rank].groups.at(group)[i])) << rank << " group " << group;
      }
    }
  }
}

}  // namespace tessera::worker
