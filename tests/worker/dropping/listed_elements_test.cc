// Elements with their indices: several ranks' lists add up to one selection, whatever they have in common.
#include "worker/dropping/listed_elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "tests/status.h"
#include "worker/dropping/float_view.h"
#include "worker/dropping/top_k.h"

namespace tessera::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Ranked {
  Selection selection;
  std::vector<int32_t> indices;
  std::vector<float> values;
};

// What a rank selects of a gradient of its own, and a window that all have in common.
Ranked SelectedBy(uint32_t rank, int64_t elements, int64_t kept, int64_t picks) {
  std::mt19937 random(rank);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(elements);
  for (float& value : gradient) value = normal(random);
  std::vector<uint64_t> words((elements + 63) / 64);
  MarkLargest(
      elements, picks, [&](int64_t i) { return KeyOf(std::fabs(gradient[i])); }, absl::MakeSpan(words));
  Ranked ranked;
  ranked.selection = Selection::Make(elements, kept, 3, words);
  ranked.indices.resize(kept);
  ListKept(ranked.selection, ranked.indices.data());
  for (const int32_t index : ranked.indices) ranked.values.push_back(gradient[index]);
  return ranked;
}

TEST(ListedElementsTest, SumsOfListsAreTheSumsOfTheirTensors) {
  for (const int64_t elements : {1, 63, 64, 65, 5000}) {
    const int64_t kept = (elements + 3) / 4;
    for (const int64_t picks : {int64_t{0}, kept / 2, kept}) {
      std::vector<Ranked> ranks;
      std::vector<absl::Span<const int32_t>> lists;
      for (uint32_t rank = 0; rank < 3; ++rank) ranks.push_back(SelectedBy(rank, elements, kept, picks));
      std::vector<float> dense(elements, 0);
      std::vector<bool> any(elements, false);
      for (const Ranked& ranked : ranks) {
        lists.emplace_back(ranked.indices);
        for (size_t i = 0; i < ranked.indices.size(); ++i) {
          dense[ranked.indices[i]] += ranked.values[i];
          any[ranked.indices[i]] = true;
        }
      }
      auto words = JoinLists(elements, lists);
      ASSERT_OK(words);
      const int64_t in_all = std::count(any.begin(), any.end(), true);
      const Selection joined = Selection::Make(elements, in_all, 0, *words);
      std::vector<float> sum(in_all, 0);
      for (const Ranked& ranked : ranks) {
        AddListed(joined, ranked.indices, {.fp32 = ranked.values.data()}, sum.data());
      }
      std::vector<int32_t> indices(in_all);
      ListKept(joined, indices.data());
      for (int64_t i = 0; i < in_all; ++i) {
        ASSERT_TRUE(any[indices[i]]);
        ASSERT_EQ(sum[i], dense[indices[i]]) << elements << " " << picks << " " << indices[i];
      }
    }
  }
}

TEST(ListedElementsTest, ValuesMayBeBf16) {
  const Selection selection = Selection::Make(100, 3, 0, {uint64_t{1} << 5 | uint64_t{1} << 63, 1});
  const std::vector<int32_t> indices{5, 64};
  const std::vector<uint16_t> values{ToBf16(1.5f, 0), ToBf16(-2, 0)};
  std::vector<float> sum{1, 1, 1};
  AddListed(selection, indices, {.bf16 = values.data()}, sum.data());
  EXPECT_THAT(sum, ElementsAre(2.5f, 1, -1));
}

TEST(ListedElementsTest, AListThatIsNoneIsRefused) {
  for (const std::vector<int32_t>& list : {std::vector<int32_t>{-1}, std::vector<int32_t>{3, 3},
                                           std::vector<int32_t>{4, 2}, std::vector<int32_t>{9, 10}}) {
    const absl::Span<const int32_t> only = list;
    EXPECT_THAT(JoinLists(10, {&only, 1}).status().message(), HasSubstr("a holder has sent element"));
  }
}

}  // namespace
}  // namespace tessera::worker
