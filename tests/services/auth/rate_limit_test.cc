#include "services/auth/rate_limit.h"

#include "gtest/gtest.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

int Taken(RateLimit* limit, const std::string& client, int calls, absl::Time now) {
  int taken = 0;
  for (int i = 0; i < calls; ++i) taken += limit->Take(client, now).ok();
  return taken;
}

TEST(RateLimit, ABurstIsFollowedByTheRate) {
  RateLimit limit(10);
  absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(Taken(&limit, "a", 100, now), 10 * RateLimit::kBurstSeconds);
  EXPECT_EQ(limit.Take("a", now).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Taken(&limit, "a", 100, now += absl::Seconds(1)), 10);
  EXPECT_EQ(Taken(&limit, "a", 100, now += absl::Hours(1)), 10 * RateLimit::kBurstSeconds);
  EXPECT_EQ(Taken(&limit, "a", 100, now - absl::Seconds(5)), 0) << "a clock that is set back gives nothing";
}

TEST(RateLimit, ClientsDoNotSpendEachOthersCallsAndTheOldestIsForgotten) {
  RateLimit limit(1);
  const absl::Time now = absl::UnixEpoch();
  EXPECT_EQ(Taken(&limit, "a", 100, now), RateLimit::kBurstSeconds);
  EXPECT_EQ(Taken(&limit, "b", 100, now), RateLimit::kBurstSeconds);
  for (size_t i = 0; i < RateLimit::kMaxClients; ++i) EXPECT_OK(limit.Take(std::to_string(i), now));
  EXPECT_EQ(Taken(&limit, "a", 100, now), RateLimit::kBurstSeconds);
}

TEST(RateLimit, ZeroIsNone) {
  RateLimit limit(0);
  EXPECT_EQ(Taken(&limit, "a", 10000, absl::UnixEpoch()), 10000);
}

}  // namespace
}  // namespace tessera::services
