#include "services/agent/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/agent/link_server.h"
#include "services/agent/probe_socket.h"
#include "tests/patience.h"
#include "tests/status.h"

namespace tessera::agent {
namespace {

LinkProbeOptions Short() { return {.pings = 5, .burst = absl::Milliseconds(5), .most_burst_bytes = 4 << 20}; }

std::string AddressOf(const LinkServer& server) { return absl::StrCat("127.0.0.1:", server.port()); }

TEST(LinkProbeTest, MeasuresBothDirectionsOfTheLoopback) {
  const auto server = LinkServer::Start("127.0.0.1", 0);
  ASSERT_OK(server);
  const auto sample = MeasureLink(AddressOf(**server), Short());
  ASSERT_OK(sample);
  EXPECT_GT(sample->round_trip_least, absl::ZeroDuration());
  EXPECT_GE(sample->round_trip_median, sample->round_trip_least);
  EXPECT_GT(sample->send_bytes_per_second, 0);
  EXPECT_GT(sample->receive_bytes_per_second, 0);
  EXPECT_GT(sample->confidence, 0);
  EXPECT_LE(sample->confidence, 1);
}

TEST(LinkProbeTest, ServesSeveralProbesAfterEachOtherAndAtOnce) {
  const auto server = LinkServer::Start("127.0.0.1", 0);
  ASSERT_OK(server);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    std::vector<absl::Status> statuses(3);
    for (absl::Status& status : statuses) {
      threads.emplace_back([&] { status = MeasureLink(AddressOf(**server), Short()).status(); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) EXPECT_OK(status);
  }
}

TEST(LinkProbeTest, NobodyThereIsUnavailable) {
  int port = 0;
  {
    const auto server = LinkServer::Start("127.0.0.1", 0);
    ASSERT_OK(server);
    port = (*server)->port();
  }
  EXPECT_TRUE(absl::IsUnavailable(MeasureLink(absl::StrCat("127.0.0.1:", port), Short()).status()));
}

TEST(LinkProbeTest, ASilentPeerIsGivenUp) {
  const auto server = LinkServer::Start("127.0.0.1", 0);
  ASSERT_OK(server);
  auto socket = ProbeSocket::Connect(AddressOf(**server), absl::Milliseconds(50));
  ASSERT_OK(socket);
  EXPECT_TRUE(absl::IsDeadlineExceeded(socket->ReceiveNumber().status()));
}

TEST(LinkProbeTest, StrangersAreSentAway) {
  const auto server = LinkServer::Start("127.0.0.1", 0);
  ASSERT_OK(server);
  auto http = ProbeSocket::Connect(AddressOf(**server), kPatience);
  ASSERT_OK(http);
  ASSERT_OK(http->SendAll("GET / HTTP/1.1\r\n\r\n", 18));
  EXPECT_TRUE(absl::IsUnavailable(http->ReceiveNumber().status()));
  auto greedy = ProbeSocket::Connect(AddressOf(**server), kPatience);
  ASSERT_OK(greedy);
  ASSERT_OK(greedy->SendAll("R", 1));
  ASSERT_OK(greedy->SendNumber(uint64_t{1} << 62));
  EXPECT_TRUE(absl::IsUnavailable(greedy->ReceiveNumber().status()));
}

TEST(LinkProbeTest, EndsWithAProbeUnderWay) {
  auto server = LinkServer::Start("127.0.0.1", 0);
  ASSERT_OK(server);
  auto socket = ProbeSocket::Connect(AddressOf(**server), kPatience);
  ASSERT_OK(socket);
  ASSERT_OK(socket->SendAll("S", 1));
  ASSERT_OK(socket->SendNumber(1 << 20));
  server->reset();
}

TEST(LinkProbeTest, AddressesThatAreNoneAreRefused) {
  for (const char* address : {"", "host", ":80", "host:"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(MeasureLink(address).status())) << address;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(LinkServer::Start("nowhere", 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(LinkServer::Start("127.0.0.1", 70000).status()));
}

}  // namespace
}  // namespace tessera::agent
