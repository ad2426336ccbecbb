#include "services/cli/quantity.h"

#include "gtest/gtest.h"

namespace tessera::cli {
namespace {

TEST(Quantity, BytesHaveThreeFiguresAndNeverFour) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(12'897'485), "12.3 MiB");
  EXPECT_EQ(FormatBytes(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(FormatBytes(-2048), "-2.00 KiB");
}

TEST(Quantity, CountsUseDecimalPrefixes) {
  EXPECT_EQ(FormatCount(950), "950");
  EXPECT_EQ(FormatCount(999.6), "1.00k");
  EXPECT_EQ(FormatCount(12345), "12.3k");
  EXPECT_EQ(FormatCount(8'000'000), "8.00M");
}

TEST(Quantity, DurationsReadLikeAClock) {
  EXPECT_EQ(FormatClock(absl::Seconds(42)), "0:42");
  EXPECT_EQ(FormatClock(absl::Seconds(725)), "12:05");
  EXPECT_EQ(FormatClock(absl::Seconds(11220)), "3:07:00");
  EXPECT_EQ(FormatClock(absl::Hours(51)), "2d 03:00");
  EXPECT_EQ(FormatClock(-absl::Seconds(1)), "-");
  EXPECT_EQ(FormatClock(absl::InfiniteDuration()), "-");
}

TEST(Quantity, AnUnknownSideHasNoDeviation) {
  EXPECT_EQ(FormatDeviation(102, 100), "+2.0 %");
  EXPECT_EQ(FormatDeviation(98, 100), "-2.0 %");
  EXPECT_EQ(FormatDeviation(0, 100), "-");
  EXPECT_EQ(FormatDeviation(100, 0), "-");
}

}  // namespace
}  // namespace tessera::cli
