#include "worker/dropping/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "scheduler/plan/counter_random.h"
#include "tests/worker/dropping/bitmaps.h"
#include "worker/dropping/top_k.h"

namespace tessera::worker {
namespace {

using ::testing::ElementsAre;

uint64_t Draw(uint64_t trial, uint64_t what, uint64_t below) {
  return plan::CounterRandom(3, trial, what) % below;
}

std::vector<uint64_t> RandomPicks(uint64_t trial, int64_t elements, int64_t picks) {
  std::vector<uint64_t> words((elements + 63) / 64);
  MarkLargest(
      elements, picks, [&](int64_t i) { return static_cast<uint32_t>(Draw(trial, 100 + i, 1u << 31)); },
      absl::MakeSpan(words));
  return words;
}

TEST(RotationTest, EveryElementHasAPositionOfItsOwn) {
  for (const int64_t n : {1, 2, 3, 4, 6, 7, 63, 64, 65, 100, 4096, 10007, 65536}) {
    const Rotation rotation(n);
    std::vector<bool> taken(n);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t position = rotation.PositionOf(i);
      ASSERT_FALSE(taken[position]) << n;
      taken[position] = true;
      ASSERT_EQ(rotation.ElementAt(position), i) << n;
    }
  }
}

TEST(RotationTest, AWindowIsMarkedWhereverItIsRead) {
  const Rotation rotation(1000);
  for (const int64_t start : {0, 1, 500, 900, 999}) {
    std::vector<uint64_t> all(16), part(3);
    rotation.Mark(start, 300, 0, absl::MakeSpan(all));
    for (int64_t i = 0; i < 1000; ++i) {
      const int64_t distance = (rotation.PositionOf(i) - start + 1000) % 1000;
      ASSERT_EQ(all[i / 64] >> (i % 64) & 1, distance < 300 ? 1u : 0u);
    }
    rotation.Mark(start, 300, 13, absl::MakeSpan(part));
    EXPECT_THAT(part, ElementsAre(all[13], all[14], all[15]));
    EXPECT_EQ(all[15] >> (1000 % 64), 0u) << "bits behind the last element";
  }
}

TEST(SelectionTest, KeepsExactlyTheBudgetWithOrWithoutPicks) {
  for (uint64_t trial = 0; trial < 1000; ++trial) {
    const auto n = 1 + static_cast<int64_t>(Draw(trial, 0, 700));
    const auto kept = 1 + static_cast<int64_t>(Draw(trial, 1, n));
    const auto step = static_cast<int64_t>(Draw(trial, 2, 1'000'000));
    const auto picked = static_cast<int64_t>(Draw(trial, 3, kept + 1));
    const std::vector<uint64_t> picks = RandomPicks(trial, n, picked);
    EXPECT_EQ(ElementsOf(Selection::Make(n, kept, step)).size(), kept);
    const std::set<int64_t> selected = ElementsOf(Selection::Make(n, kept, step, picks));
    ASSERT_EQ(selected.size(), kept) << "n " << n << " picked " << picked;
    const std::set<int64_t> wanted = ElementsOf(picks);
    ASSERT_TRUE(std::includes(selected.begin(), selected.end(), wanted.begin(), wanted.end()));
  }
}

TEST(SelectionTest, EveryElementIsSentWithinTheInverseDensitySteps) {
  for (uint64_t trial = 0; trial < 200; ++trial) {
    const auto n = 1 + static_cast<int64_t>(Draw(trial, 0, 500));
    const auto kept = 1 + static_cast<int64_t>(Draw(trial, 1, n));
    const auto first = static_cast<int64_t>(Draw(trial, 2, 10000));
    std::set<int64_t> sent;
    for (int64_t step = first; step < first + (n + kept - 1) / kept; ++step) {
      sent.merge(ElementsOf(Selection::Make(n, kept, step)));
    }
    ASSERT_EQ(sent.size(), n) << "kept " << kept << " from step " << first;
  }
}

TEST(SelectionTest, RotationReachesEverythingWhateverIsPickedMeanwhile) {
  for (uint64_t trial = 0; trial < 200; ++trial) {
    const auto n = 2 + static_cast<int64_t>(Draw(trial, 0, 300));
    const auto kept = 2 + static_cast<int64_t>(Draw(trial, 1, n - 1));
    const auto picked = static_cast<int64_t>(Draw(trial, 2, kept));  // at least one rotates
    const int64_t window = kept - picked;
    std::set<int64_t> sent;
    for (int64_t step = 0; step < (n + window - 1) / window; ++step) {
      sent.merge(ElementsOf(Selection::Make(n, kept, step, RandomPicks(trial * 1000 + step, n, picked))));
    }
    ASSERT_EQ(sent.size(), n) << "kept " << kept << " picked " << picked;
  }
}

TEST(SelectionTest, ReadingInPartsGivesTheSame) {
  const Selection selection = Selection::Make(9999, 3000, 17, RandomPicks(1, 9999, 1000));
  std::vector<uint64_t> all(selection.words()), parts(selection.words());
  selection.Read(0, absl::MakeSpan(all));
  for (int64_t word = 0; word < selection.words(); word += 10) {
    const int64_t count = std::min<int64_t>(10, selection.words() - word);
    selection.Read(word, absl::MakeSpan(parts).subspan(word, count));
  }
  EXPECT_EQ(all, parts);
}

TEST(SelectionTest, FingerprintsTellSelectionsApart) {
  std::set<uint64_t> seen;
  for (int64_t step = 0; step < 50; ++step) seen.insert(Selection::Make(1009, 100, step).Fingerprint());
  for (uint64_t t = 0; t < 50; ++t) {
    seen.insert(Selection::Make(1009, 100, 0, RandomPicks(t, 1009, 100)).Fingerprint());
  }
  EXPECT_EQ(seen.size(), 100);
  EXPECT_EQ(Selection::Make(1009, 100, 3).Fingerprint(), Selection::Make(1009, 100, 3).Fingerprint());
}

TEST(TopKTest, AgreesWithSortingAndBreaksTiesByIndex) {
  for (uint64_t trial = 0; trial < 300; ++trial) {
    const auto n = 1 + static_cast<int64_t>(Draw(trial, 0, 400));
    const auto k = static_cast<int64_t>(Draw(trial, 1, n + 1));
    std::vector<float> scores(n);
    // Few values, so that there are ties; of all magnitudes.
    for (int64_t i = 0; i < n; ++i)
      scores[i] = std::ldexp(1.0f, static_cast<int>(Draw(trial, 10 + i, 12)) - 6);
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
    std::vector<uint64_t> words((n + 63) / 64);
    MarkLargest(
        n, k, [&](int64_t i) { return KeyOf(scores[i]); }, absl::MakeSpan(words));
    ASSERT_EQ(ElementsOf(words), std::set<int64_t>(order.begin(), order.begin() + k)) << "trial " << trial;
  }
}

// Large enough for thresholds by sampling; keys that a sample of every 61st element misjudges as well.
TEST(TopKTest, ASampleNeverChangesTheResult) {
  constexpr int64_t kElements = 100'003;
  std::vector<uint32_t> keys(kElements);
  for (const int kind : {0, 1, 2}) {
    for (int64_t i = 0; i < kElements; ++i) {
      const auto draw = static_cast<uint32_t>(Draw(7, i, uint64_t{1} << 32));
      keys[i] = kind == 0 ? draw : kind == 1 ? draw % 5 : (i % 61 == 0 ? 1000 + draw % 9 : draw % 900);
    }
    for (const int64_t picks : {int64_t{1}, int64_t{700}, kElements / 3, kElements - 1, kElements}) {
      std::vector<uint64_t> words((kElements + 63) / 64);
      const auto key = [&](int64_t i) { return keys[i]; };
      MarkLargest(kElements, picks, key, absl::MakeSpan(words));
      const Threshold exact = ThresholdOf(kElements, picks, key);
      int64_t marked = 0, ties = 0;
      for (int64_t i = 0; i < kElements; ++i) {
        const bool in = (words[i / 64] >> (i % 64) & 1) != 0;
        const bool tie = keys[i] == exact.key && ties++ < exact.ties;
        ASSERT_EQ(in, keys[i] > exact.key || tie)
            << "kind " << kind << " picks " << picks << " element " << i;
        marked += in ? 1 : 0;
      }
      ASSERT_EQ(marked, picks);
    }
  }
}

}  // namespace
}  // namespace tessera::worker
