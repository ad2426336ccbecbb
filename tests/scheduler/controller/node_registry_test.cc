#include "scheduler/controller/node_registry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "scheduler/controller/proto_time.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

v1::ReportNodeRequest ReportOf(const std::string& name) {
  v1::ReportNodeRequest report;
  report.mutable_node()->set_name(name);
  report.mutable_node()->set_address(name + ":7070");
  return report;
}

v1::LinkProfile Link(const std::string& peer, double rate = 1e6) {
  v1::LinkProfile link;
  link.set_peer(peer);
  link.set_round_trip_seconds(0.002);
  link.set_bandwidth_bytes_per_second(rate);
  link.set_confidence(0.9);
  return link;
}

// What the node is asked to measure; "" for nothing.
std::string Asked(NodeRegistry& registry, const v1::ReportNodeRequest& report, absl::Time now) {
  const auto answer = registry.Report(report, now);
  EXPECT_OK(answer);
  EXPECT_LE(answer->measure_size(), 1);
  return answer->measure().empty() ? "" : answer->measure(0).peer();
}

// Two nodes are there, and the first has measured the link to the second.
void MeasureLink(NodeRegistry& registry, double rate = 1e6) {
  ASSERT_EQ(Asked(registry, ReportOf("a"), kStart), "");
  ASSERT_EQ(Asked(registry, ReportOf("b"), kStart), "");
  v1::ReportNodeRequest measured = ReportOf("a");
  *measured.add_links() = Link("b", rate);
  ASSERT_EQ(Asked(registry, measured, kStart), "");
}

TEST(NodeRegistryTest, ANodeIsShownWithItsAgeAndBecomesStale) {
  NodeRegistry registry;
  ASSERT_EQ(Asked(registry, ReportOf("a"), kStart), "");
  auto nodes = registry.Nodes(kStart + absl::Seconds(20));
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].age().seconds(), 20);
  EXPECT_FALSE(nodes[0].stale());
  EXPECT_TRUE(registry.Nodes(kStart + absl::Minutes(2))[0].stale());
}

TEST(NodeRegistryTest, ALinkIsMeasuredOnceAndAgainWhenItIsDue) {
  NodeRegistry registry;
  ASSERT_EQ(Asked(registry, ReportOf("a"), kStart), "");
  ASSERT_EQ(Asked(registry, ReportOf("b"), kStart), "");  // of two nodes the first measures
  ASSERT_EQ(Asked(registry, ReportOf("a"), kStart), "b");
  EXPECT_TRUE(registry.Links(kStart).empty()) << "asked for is not measured";
  v1::ReportNodeRequest measured = ReportOf("a");
  *measured.add_links() = Link("b");
  EXPECT_EQ(Asked(registry, measured, kStart + absl::Seconds(3)), "");
  const auto links = registry.Links(kStart + absl::Seconds(3));
  ASSERT_EQ(links.size(), 1u);
  EXPECT_EQ(links[0].node(), "a");
  EXPECT_EQ(links[0].peer(), "b");
  EXPECT_DOUBLE_EQ(links[0].confidence(), 0.9);
  EXPECT_FALSE(links[0].stale());
  EXPECT_EQ(Asked(registry, ReportOf("b"), kStart + absl::Minutes(11)), "");
  EXPECT_EQ(Asked(registry, ReportOf("a"), kStart + absl::Minutes(11)), "b");
}

TEST(NodeRegistryTest, ConfidenceFallsWithAgeUntilTheLinkIsStale) {
  NodeRegistry registry;
  MeasureLink(registry);
  const auto at = [&](absl::Duration age) { return registry.Links(kStart + age).at(0); };
  EXPECT_LT(at(absl::Minutes(20)).confidence(), at(absl::Minutes(10)).confidence());
  EXPECT_NEAR(at(absl::Minutes(30)).confidence(), 0.45, 1e-9);
  EXPECT_FALSE(at(absl::Minutes(30)).stale());
  EXPECT_TRUE(at(absl::Minutes(31)).stale());
}

TEST(NodeRegistryTest, AFailedTryKeepsWhatWasKnownAndSaysWhy) {
  NodeRegistry registry;
  MeasureLink(registry, 5e6);
  v1::ReportNodeRequest failed = ReportOf("a");
  failed.add_links()->set_peer("b");
  failed.mutable_links(0)->set_error("b:7070: connection refused");
  ASSERT_EQ(Asked(registry, failed, kStart + absl::Minutes(10)), "");
  const v1::LinkProfile link = registry.Links(kStart + absl::Minutes(10)).at(0);
  EXPECT_EQ(link.bandwidth_bytes_per_second(), 5e6);
  EXPECT_EQ(link.age().seconds(), 600);
  EXPECT_EQ(link.error(), "b:7070: connection refused");
}

TEST(NodeRegistryTest, NoTwoMeasurementsShareANode) {
  NodeRegistry registry;
  for (const char* name : {"a", "b", "c", "d"}) Asked(registry, ReportOf(name), kStart);
  std::set<std::string> busy;
  for (const char* name : {"a", "b", "c", "d"}) {
    const std::string peer = Asked(registry, ReportOf(name), kStart);
    if (peer.empty()) continue;
    EXPECT_TRUE(busy.insert(name).second) << name;
    EXPECT_TRUE(busy.insert(peer).second) << peer;
  }
  EXPECT_FALSE(busy.empty());
}

TEST(NodeRegistryTest, AMeasurementThatNeverEndsIsGivenUp) {
  NodeRegistry registry;
  ASSERT_EQ(Asked(registry, ReportOf("a"), kStart), "");
  ASSERT_EQ(Asked(registry, ReportOf("b"), kStart), "");
  ASSERT_EQ(Asked(registry, ReportOf("a"), kStart), "b");
  for (int seconds = 0; seconds < 120; seconds += 15) {
    EXPECT_EQ(Asked(registry, ReportOf("b"), kStart + absl::Seconds(seconds)), "");
  }
  EXPECT_EQ(Asked(registry, ReportOf("a"), kStart + absl::Minutes(3)), "");  // b was silent too long by now
  ASSERT_EQ(Asked(registry, ReportOf("b"), kStart + absl::Minutes(3)), "");
  EXPECT_EQ(Asked(registry, ReportOf("a"), kStart + absl::Minutes(3)), "b");
}

TEST(NodeRegistryTest, PeersAreBoundedAndReachEverybody) {
  NodeRegistry registry({.measurement_limit = absl::Seconds(1)});
  constexpr int kNodes = 100;
  const auto name = [](int n) { return absl::StrCat("node-", 1000 + n); };
  for (int n = 0; n < kNodes; ++n) Asked(registry, ReportOf(name(n)), kStart);
  const absl::Time now = kStart + absl::Seconds(2);  // what they were asked as they came is given up
  for (int round = 0; round < 10; ++round) {
    for (int n = 0; n < kNodes; ++n) {
      v1::ReportNodeRequest report = ReportOf(name(n));
      while (true) {
        const std::string peer = Asked(registry, report, now);
        if (peer.empty()) break;
        report = ReportOf(name(n));
        *report.add_links() = Link(peer);
      }
    }
  }
  const auto links = registry.Links(now);
  std::map<std::string, int> degree;
  for (const v1::LinkProfile& link : links) ++degree[link.node()], ++degree[link.peer()];
  ASSERT_EQ(degree.size(), static_cast<size_t>(kNodes));
  for (const auto& [node, count] : degree) {
    EXPECT_LE(count, 14) << node;  // 2 log2 n
    EXPECT_GE(count, 6) << node;
  }
}

TEST(NodeRegistryTest, LinksAreMeasuredAnewOnRequest) {
  NodeRegistry registry;
  EXPECT_TRUE(absl::IsInvalidArgument(registry.MarkDue("a")));
  MeasureLink(registry);
  ASSERT_OK(registry.MarkDue("b"));
  EXPECT_EQ(Asked(registry, ReportOf("a"), kStart), "b");
}

TEST(NodeRegistryTest, WhoHasLeftIsForgottenWithItsLinks) {
  NodeRegistry registry;
  MeasureLink(registry);
  const absl::Time later = kStart + absl::Hours(25);
  ASSERT_EQ(Asked(registry, ReportOf("a"), later), "");
  EXPECT_EQ(registry.Nodes(later).size(), 1u);
  EXPECT_TRUE(registry.Links(later).empty());
}

TEST(NodeRegistryTest, ImpossibleReportsAreRefusedByField) {
  NodeRegistry registry({.max_nodes = 1});
  const auto message = [&](const std::function<void(v1::ReportNodeRequest&)>& change) {
    v1::ReportNodeRequest report = ReportOf("a");
    change(report);
    return std::string(registry.Report(report, kStart).status().message());
  };
  const auto begins = [](const std::string& text, const std::string& with) {
    return text.rfind(with, 0) == 0;
  };
  EXPECT_TRUE(begins(message([](auto& r) { r.mutable_node()->clear_name(); }), "node.name:"));
  EXPECT_TRUE(
      begins(message([](auto& r) { r.mutable_node()->set_name(std::string(300, 'x')); }), "node.name:"));
  EXPECT_TRUE(begins(message([](auto& r) { r.mutable_node()->add_devices()->set_free_bytes(-1); }),
                     "node.devices[0].freeBytes:"));
  EXPECT_TRUE(begins(message([](auto& r) { r.mutable_node()->add_devices()->set_fragmentation_ratio(NAN); }),
                     "node.devices[0].fragmentationRatio:"));
  EXPECT_TRUE(begins(message([](auto& r) { *r.add_links() = Link(""); }), "links[0].peer:"));
  EXPECT_TRUE(
      begins(message([](auto& r) { *r.add_links() = Link("b", -1); }), "links[0].bandwidthBytesPerSecond:"));
  EXPECT_TRUE(
      begins(message([](auto& r) { *r.add_links() = Link("b", std::numeric_limits<double>::infinity()); }),
             "links[0].bandwidthBytesPerSecond:"));
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_TRUE(absl::IsResourceExhausted(registry.Report(ReportOf("b"), kStart).status()));
}

}  // namespace
}  // namespace tessera::scheduler
