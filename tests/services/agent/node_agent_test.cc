#include "services/agent/node_agent.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/controller/node_registry.h"
#include "services/agent/link_server.h"
#include "tests/status.h"

namespace tessera::agent {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

v1::NodeProfile Named(const std::string& name) {
  v1::NodeProfile node;
  node.set_name(name);
  return node;
}

TEST(NodeAgentTest, TwoNodesFindEachOtherThroughTheSchedulerAndMeasureTheirLink) {
  const auto server = LinkServer::Start("127.0.0.1", 0);
  ASSERT_OK(server);
  scheduler::NodeRegistry registry;
  const auto options = [&](const std::string& name) {
    return NodeAgentOptions{
        .address = absl::StrCat("127.0.0.1:", (*server)->port()),
        .profile = [name] { return Named(name); },
        .report = [&](const v1::ReportNodeRequest& request) { return registry.Report(request, kStart); },
        .measure =
            [](const std::string& address) {
              return MeasureLink(address,
                                 {.pings = 5, .burst = absl::Milliseconds(5), .most_burst_bytes = 4 << 20});
            }};
  };
  NodeAgent a(options("a")), b(options("b"));
  EXPECT_GT(a.Pass(), absl::ZeroDuration());
  EXPECT_GT(b.Pass(), absl::ZeroDuration());
  EXPECT_EQ(a.Pass(), absl::ZeroDuration()) << "what was measured is reported at once";
  EXPECT_TRUE(registry.Links(kStart).empty());
  EXPECT_GT(a.Pass(), absl::ZeroDuration());
  const auto links = registry.Links(kStart, "b");
  ASSERT_EQ(links.size(), 1u);
  EXPECT_EQ(links[0].node(), "a");
  EXPECT_GT(links[0].round_trip_seconds(), 0);
  EXPECT_GE(links[0].round_trip_seconds(), links[0].least_round_trip_seconds());
  EXPECT_GT(links[0].bandwidth_bytes_per_second(), 0);
  EXPECT_GT(links[0].receive_bandwidth_bytes_per_second(), 0);
  EXPECT_GT(links[0].confidence(), 0);
}

TEST(NodeAgentTest, WhatWasMeasuredIsKeptUntilAReportArrives) {
  std::vector<v1::ReportNodeRequest> seen;
  bool reachable = true;
  NodeAgent agent(
      {.profile = [] { return Named("a"); },
       .report = [&](const v1::ReportNodeRequest& request) -> absl::StatusOr<v1::ReportNodeResponse> {
         seen.push_back(request);
         if (!reachable) return absl::UnavailableError("gone");
         v1::ReportNodeResponse response;
         if (seen.size() == 1) response.add_measure()->set_peer("b");
         return response;
       },
       .measure =
           [](const std::string&) { return absl::StatusOr<LinkSample>(LinkSample{.confidence = 1}); }});
  EXPECT_EQ(agent.Pass(), absl::ZeroDuration());
  reachable = false;
  EXPECT_GT(agent.Pass(), absl::ZeroDuration());
  reachable = true;
  agent.Pass();
  agent.Pass();
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[1].links_size(), 1);
  EXPECT_EQ(seen[2].links_size(), 1) << "the lost report is made again";
  EXPECT_EQ(seen[3].links_size(), 0);
}

TEST(NodeAgentTest, AnUnreachablePeerIsReportedWithTheReason) {
  v1::ReportNodeRequest last;
  NodeAgent agent({.profile = [] { return Named("a"); },
                   .report =
                       [&](const v1::ReportNodeRequest& request) {
                         last = request;
                         v1::ReportNodeResponse response;
                         if (request.links().empty()) response.add_measure()->set_peer("b");
                         return absl::StatusOr<v1::ReportNodeResponse>(response);
                       },
                   .measure = [](const std::string&) -> absl::StatusOr<LinkSample> {
                     return absl::UnavailableError("nobody answers");
                   }});
  agent.Pass();
  agent.Pass();
  ASSERT_EQ(last.links_size(), 1);
  EXPECT_EQ(last.links(0).peer(), "b");
  EXPECT_EQ(last.links(0).error(), "nobody answers");
}

TEST(NodeAgentTest, EndsWhileItWaits) {
  NodeAgent agent({.profile = [] { return Named("a"); },
                   .report =
                       [](const v1::ReportNodeRequest&) {
                         v1::ReportNodeResponse response;
                         response.mutable_next_report()->set_seconds(600);
                         return absl::StatusOr<v1::ReportNodeResponse>(response);
                       }});
  agent.Start();
}

}  // namespace
}  // namespace tessera::agent
