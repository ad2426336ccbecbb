#include "scheduler/plan/node_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/rank_order.h"
#include "tests/status.h"

namespace tessera::plan {
namespace {

std::vector<NodeOffer> Alike(int count, int64_t bytes = int64_t{1} << 30) {
  std::vector<NodeOffer> nodes;
  for (int n = 0; n < count; ++n) nodes.push_back({absl::StrCat("node-", n), bytes, 4});
  return nodes;
}

std::map<int, int> Counts(const std::vector<RankPlace>& places) {
  std::map<int, int> counts;
  for (const RankPlace& place : places) ++counts[place.node];
  return counts;
}

TEST(NodeChoiceTest, AlikeNodesGetAlikeManyWorkers) {
  const auto places = ChooseNodes(Alike(4), {}, 8);
  ASSERT_OK(places);
  for (const auto& [node, count] : Counts(*places)) EXPECT_EQ(count, 2) << node;
  EXPECT_EQ(places->front().free_bytes, int64_t{1} << 29);
  EXPECT_EQ(places->front().cores, 2);
}

TEST(NodeChoiceTest, RanksOfOneNodeAreSideBySide) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<NodeOffer> nodes = Alike(static_cast<int>(random() % 7) + 1);
    for (NodeOffer& node : nodes) node.free_bytes = static_cast<int64_t>(random() % 5) << 28;
    std::vector<NodeLink> links;
    for (int a = 0; a < static_cast<int>(nodes.size()); ++a) {
      for (int b = 0; b < a; ++b) links.push_back({a, b, 1e-4 * (1 + random() % 100), 1e6 * (random() % 50)});
    }
    const int workers = static_cast<int>(random() % 20) + 1;
    const auto places = ChooseNodes(nodes, links, workers);
    ASSERT_OK(places);
    ASSERT_EQ(places->size(), static_cast<size_t>(workers));
    std::set<int> left;
    for (size_t r = 0; r < places->size(); ++r) {
      const RankPlace& place = (*places)[r];
      EXPECT_EQ(left.count(place.node), 0u) << "round " << round;
      if (r + 1 < places->size() && (*places)[r + 1].node != place.node) left.insert(place.node);
      EXPECT_TRUE(std::isfinite(place.bytes_per_second));
    }
    EXPECT_EQ(places->size(), ChooseNodes(nodes, links, workers)->size());
    for (size_t r = 0; r < places->size(); ++r) {
      EXPECT_EQ((*places)[r].node, (*ChooseNodes(nodes, links, workers))[r].node) << "deterministic";
    }
  }
}

TEST(NodeChoiceTest, NodesFollowAShortTour) {
  // Two racks of three; 0.1 ms within, 20 ms between; the numbers alternate between them.
  std::vector<NodeLink> links;
  std::vector<double> seconds(36, 0.0);
  for (int a = 0; a < 6; ++a) {
    for (int b = 0; b < a; ++b) {
      const double time = a % 2 == b % 2 ? 1e-4 : 2e-2;
      links.push_back({a, b, time, 1e8});
      seconds[a * 6 + b] = seconds[b * 6 + a] = time;
    }
  }
  const auto places = ChooseNodes(Alike(6), links, 6);
  ASSERT_OK(places);
  std::vector<int> tour;
  for (const RankPlace& place : *places) tour.push_back(place.node);
  EXPECT_NEAR(TourSeconds(tour, seconds), 4 * 1e-4 + 2 * 2e-2, 1e-12) << "two crossings are the least";
}

TEST(NodeChoiceTest, ANodeBehindASlowLinkIsUsedLast) {
  std::vector<NodeLink> links;
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < a; ++b) links.push_back({a, b, 1e-3, a == 3 ? 1e6 : 1e9});
  }
  const auto three = ChooseNodes(Alike(4), links, 3);
  ASSERT_OK(three);
  EXPECT_EQ(Counts(*three).count(3), 0u);
}

TEST(NodeChoiceTest, WorkersOfANodeShareItsLink) {
  const auto places = ChooseNodes(Alike(2), {{0, 1, 1e-3, 1e8}}, 4);
  ASSERT_OK(places);
  for (const RankPlace& place : *places) EXPECT_EQ(place.bytes_per_second, 5e7);
  const auto alone = ChooseNodes(Alike(1), {}, 4);
  ASSERT_OK(alone);
  EXPECT_EQ(alone->front().bytes_per_second, 0) << "nothing is sent over a link";
}

TEST(NodeChoiceTest, WhatMakesNoSenseIsRefused) {
  const auto nodes = Alike(2);
  EXPECT_FALSE(ChooseNodes({}, {}, 1).ok());
  EXPECT_FALSE(ChooseNodes(nodes, {}, 0).ok());
  EXPECT_FALSE(ChooseNodes(nodes, {{0, 2, 1e-3, 1}}, 1).ok());
  EXPECT_FALSE(ChooseNodes(nodes, {{0, 0, 1e-3, 1}}, 1).ok());
  EXPECT_FALSE(ChooseNodes(nodes, {{0, 1, NAN, 1}}, 1).ok());
  EXPECT_FALSE(ChooseNodes(nodes, {{0, 1, 1e-3, -1}}, 1).ok());
  EXPECT_FALSE(ChooseNodes({{"a", -1, 1}}, {}, 1).ok());
  EXPECT_FALSE(ChooseNodes({{"a", 1, INFINITY}}, {}, 1).ok());
}

}  // namespace
}  // namespace tessera::plan
