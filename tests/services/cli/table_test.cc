#include "services/cli/table.h"

#include "gtest/gtest.h"
#include "tests/services/cli/example_job.h"

namespace tessera::cli {
namespace {

TEST(Table, EscapeSequencesTakeNoColumns) {
  EXPECT_EQ(DisplayWidth(Paint("hello", Ink::kRed, kColor)), 5);
  EXPECT_EQ(DisplayWidth("█▌░"), 3);
}

TEST(Table, PaintLeavesTextAloneWithoutColour) { EXPECT_EQ(Paint("hello", Ink::kRed, kAscii), "hello"); }

TEST(Table, FitCutsAtColumnsAndClosesColours) {
  EXPECT_EQ(Fit("hello", 5, kUnicode), "hello");
  EXPECT_EQ(Fit("hello", 4, kUnicode), "hel…");
  EXPECT_EQ(Fit("hello", 4, kAscii), "hel~");
  EXPECT_EQ(Fit("hello", 0, kAscii), "");
  EXPECT_EQ(Fit(Paint("hello", Ink::kRed, kColor), 3, kColor), "\033[31mhe…\033[0m");
}

TEST(Table, WrapKeepsWordsWhole) {
  EXPECT_EQ(Text(Wrap("one two three\nfour", 9, "  ")), "  one two\n  three\n  four\n");
  EXPECT_EQ(Text(Wrap("immeasurable", 4, "")), "immeasurable\n");
}

TEST(Table, BarIsExactlyAsWideAsAsked) {
  for (int width = 1; width < 50; ++width) {
    for (int percent = -10; percent <= 120; ++percent) {
      EXPECT_EQ(DisplayWidth(Bar(percent / 100.0, width, kUnicode)), width);
      if (width >= 2) EXPECT_EQ(DisplayWidth(Bar(percent / 100.0, width, kAscii)), width);
    }
  }
  EXPECT_EQ(Bar(0.5, 4, kUnicode), "██░░");
  EXPECT_EQ(Bar(0.5, 6, kAscii), "[##--]");
  EXPECT_EQ(Bar(1, 6, kAscii), "[####]");
}

TEST(Table, ColumnsLeaveByPriorityWhenTheTableIsTooWide) {
  const std::vector<Column> columns = {{"name"}, {"first to go", true, 2}, {"then", true, 1}};
  const std::vector<std::vector<std::string>> rows = {{"a", "1", "22"}};
  EXPECT_EQ(Text(RenderTable(columns, rows, 0, kAscii)),
            "name  first to go  then\na               1    22\n");
  EXPECT_EQ(Text(RenderTable(columns, rows, 22, kAscii)), "name  then\na       22\n");
  EXPECT_EQ(Text(RenderTable(columns, rows, 9, kAscii)), "name\na\n");
  EXPECT_EQ(Text(RenderTable(columns, rows, 3, kAscii)), "na~\na\n");
}

}  // namespace
}  // namespace tessera::cli
