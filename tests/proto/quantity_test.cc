#include "proto/tessera/v1/quantity.h"

#include "gtest/gtest.h"

namespace tessera::spec {
namespace {

TEST(Quantity, BytesInEveryUnit) {
  EXPECT_EQ(ParseBytes("4096"), 4096);
  EXPECT_EQ(ParseBytes("512MiB"), int64_t{512} << 20);
  EXPECT_EQ(ParseBytes("2Gi"), int64_t{2} << 30);
  EXPECT_EQ(ParseBytes("1.5GB"), 1500000000);
  EXPECT_EQ(ParseBytes("1.5 GiB"), int64_t{3} << 29);
  EXPECT_EQ(ParseBytes("100k"), 100000);
  EXPECT_EQ(ParseBytes("9223372036854775807"), INT64_MAX);
  for (const char* bad :
       {"", "MiB", "-1", "1 parsec", "1.2.3MB", "1e3MB", "10EiB", "1MiBB", "9223372036854775808000"}) {
    EXPECT_FALSE(ParseBytes(bad).has_value()) << bad;
  }
}

TEST(Quantity, BytesForPeople) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(int64_t{512} << 20), "512 MiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
}

TEST(Quantity, DurationsGoBothWays) {
  for (const auto& [text, printed] : {std::pair{"30s", "30s"},
                                      {"5m", "300s"},
                                      {"1h30m", "5400s"},
                                      {"250ms", "0.25s"},
                                      {"-1.5s", "-1.5s"},
                                      {"0", "0s"}}) {
    const auto duration = ParseDuration(text);
    ASSERT_TRUE(duration.has_value()) << text;
    EXPECT_EQ(FormatDuration(*duration), printed);
  }
  for (const char* bad : {"", "30", "inf", "5 min", "99999999999999h"})
    EXPECT_FALSE(ParseDuration(bad)) << bad;
}

TEST(Quantity, TimesGoBothWays) {
  const auto time = ParseTimestamp("2024-05-01T14:00:00.5+02:00");
  ASSERT_TRUE(time.has_value());
  EXPECT_EQ(FormatTimestamp(*time), "2024-05-01T12:00:00.5Z");
  for (const char* bad : {"", "infinite-future", "2024-05-01", "yesterday"})
    EXPECT_FALSE(ParseTimestamp(bad)) << bad;
}

}  // namespace
}  // namespace tessera::spec
