// What CUDA threads do to elements, compiled for the host, against the code that trains on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/worker/kernels/portable_device.h"
#include "worker/dropping/float_view.h"
#include "worker/kernels/softmax.h"

namespace tessera::worker {
namespace {

// Less than a word, a word, more than a tile, several tiles, and a prime.
const std::vector<int64_t> kSizes = {1, 63, 64, 65, 4096, 16384, 16385, 40009};

std::vector<float> Values(uint64_t seed, int64_t elements) {
  std::vector<float> values(elements);
  for (int64_t i = 0; i < elements; ++i) {
    values[i] = static_cast<float>(static_cast<int64_t>(plan::CounterRandom(seed, i) % 4096) - 2048) / 1024;
  }
  return values;
}

std::vector<uint64_t> SomePicks(int64_t elements, int64_t picks, uint64_t seed) {
  std::vector<uint64_t> words((elements + 63) / 64, 0);
  for (int64_t k = 0; k < picks; ++k) {
    const auto i = static_cast<int64_t>(plan::CounterRandom(seed, k) % elements);
    words[i / 64] |= uint64_t{1} << (i % 64);
  }
  return words;
}

// Windows that wrap around, with picks and without.
std::vector<Selection> Selections() {
  std::vector<Selection> all;
  for (const int64_t elements : kSizes) {
    for (const double share : {0.0, 0.03, 0.4, 1.0}) {
      const int64_t kept = std::max<int64_t>(1, std::llround(share * static_cast<double>(elements)));
      for (const int64_t step : {0, 1, 7}) {
        all.push_back(Selection::Make(elements, kept, step));
        if (kept < elements)
          all.push_back(Selection::Make(elements, kept, step, SomePicks(elements, kept / 2, step)));
      }
    }
  }
  return all;
}

TEST(KernelsTest, WordsAreThoseOfTheSelection) {
  for (const Selection& selection : Selections()) {
    std::vector<uint64_t> words(selection.words());
    selection.Read(0, absl::MakeSpan(words));
    ASSERT_EQ(PortableOperations(selection).words(), words)
        << selection.elements() << " " << selection.kept();
  }
}

// Positions in the rotation are products of two numbers near 2^31.
TEST(KernelsTest, WordsOfTheLargestTensorAreThoseOfTheSelection) {
  const int64_t elements = Rotation::kMostElements;
  const Selection selection = Selection::Make(elements, elements / 3, 123456789);
  for (const int64_t word : {int64_t{0}, int64_t{1000003}, selection.words() - 2, selection.words() - 1}) {
    uint64_t expected = 0;
    selection.Read(word, absl::MakeSpan(&expected, 1));
    EXPECT_EQ(kernels::SelectedWord(selection.View(nullptr), word), expected) << word;
  }
}

TEST(KernelsTest, CuttingIsTheHostsToTheBit) {
  for (const Selection& selection : Selections()) {
    const int64_t n = selection.elements();
    const auto host = HostKeptDevice().Prepare(selection);
    PortableOperations portable(selection);
    for (const int keep : {0, 1, 2}) {  // no residual, fp32, bf16
      struct State {
        std::vector<float> fp32, ring;
        std::vector<uint16_t> bf16;
        ResidualView View(int keep, uint64_t seed) {
          ResidualView view;
          if (keep == 1) view.fp32 = fp32.data();
          if (keep == 2) view = {.bf16 = bf16.data(), .seed = seed};
          return view;
        }
      };
      State a{Values(1, n), std::vector<float>(selection.kept(), NAN), {}};
      for (const float value : a.fp32) a.bf16.push_back(ToBf16(value, 0));
      State b = a;
      for (int micro = 0; micro < 3; ++micro) {
        const std::vector<float> gradient = Values(2 + micro, n);
        const float* from = micro == 2 ? nullptr : gradient.data();
        host->Cut(from, micro == 0, a.View(keep, micro), a.ring.data());
        portable.Cut(from, micro == 0, b.View(keep, micro), b.ring.data());
      }
      const int64_t begin = selection.kept() / 3, end = selection.kept() - selection.kept() / 4;
      host->Return(begin, end, a.ring.data(), a.View(keep, 9));
      portable.Return(begin, end, b.ring.data(), b.View(keep, 9));
      ASSERT_EQ(a.ring, b.ring);
      ASSERT_EQ(a.fp32, b.fp32);
      ASSERT_EQ(a.bf16, b.bf16);
    }
  }
}

TEST(KernelsTest, SpreadingGatheringAndScatteringAreTheHosts) {
  for (const Selection& selection : Selections()) {
    const int64_t n = selection.elements();
    const auto host = HostKeptDevice().Prepare(selection);
    PortableOperations portable(selection);
    const std::vector<float> values = Values(3, n);
    std::vector<float> ring(selection.kept()), same(selection.kept());
    host->Gather(values.data(), ring.data());
    portable.Gather(values.data(), same.data());
    ASSERT_EQ(ring, same);
    std::vector<float> a = Values(4, n), b = a;
    host->Scatter(ring.data(), a.data());
    portable.Scatter(ring.data(), b.data());
    ASSERT_EQ(a, b);
    for (int64_t begin = 0; begin < n; begin += 640) {
      const int64_t count = std::min<int64_t>(640, n - begin);
      host->Spread(begin, count, ring.data(), a.data() + begin);
      portable.Spread(begin, count, ring.data(), b.data() + begin);
    }
    ASSERT_EQ(a, b);
  }
}

TEST(KernelsTest, PicksAreTheRulesAlsoWithTiesZerosAndWhatIsNotANumber) {
  for (const int64_t n : kSizes) {
    std::vector<float> m = Values(5, n), v = Values(6, n);
    for (int64_t i = 0; i < n; ++i) {
      v[i] = std::floor(std::fabs(v[i]) * 4) / 4;  // many ties
      if (i % 97 == 5) v[i] = std::numeric_limits<float>::quiet_NaN();
      if (i % 89 == 7) v[i] = std::numeric_limits<float>::infinity();
    }
    std::vector<uint16_t> bf16;
    for (const float value : m) bf16.push_back(ToBf16(value, 0));
    for (const DroppingRule* rule : DroppingRules()) {
      if (!rule->needs().importance.has_value()) continue;
      for (const double share : {0.0, 0.01, 0.3, 1.0}) {
        RuleInput input;
        input.elements = n;
        input.picks = std::llround(share * static_cast<double>(n));
        input.first_moment = m.data();
        input.second_moment = v.data();
        for (const bool half : {false, true}) {
          input.residual = half ? FloatView{.bf16 = bf16.data()} : FloatView{.fp32 = m.data()};
          std::vector<uint64_t> expected((n + 63) / 64), found((n + 63) / 64);
          rule->Pick(input, absl::MakeSpan(expected));
          PortableKeptDevice().Pick(*rule, input, absl::MakeSpan(found));
          ASSERT_EQ(found, expected) << rule->name() << " " << n << " " << share;
        }
      }
    }
  }
}

TEST(KernelsTest, SketchesAreTheHostsToTheBit) {
  const std::vector<float> values = Values(7, 40009);
  RuleInput input;
  input.seed = 3;
  input.tensor = 5;
  input.step = 11;
  input.elements = 40009;
  input.residual.fp32 = values.data();
  EXPECT_EQ(PortableKeptDevice().Sketch(input), SketchOf(input));
}

TEST(KernelsTest, AWordsLowestBitsAreTaken) {
  EXPECT_EQ(kernels::LowestBits(0b101101, 2), 0b101u);
  EXPECT_EQ(kernels::LowestBits(0b101101, 0), 0u);
  EXPECT_EQ(kernels::LowestBits(~uint64_t{0}, 64), ~uint64_t{0});
  EXPECT_EQ(kernels::LowestBits(uint64_t{1} << 63, 5), uint64_t{1} << 63);
}

// Whatever parts a row is cut into.
TEST(KernelsTest, ARowsSoftmaxIsThatOfItsParts) {
  std::vector<float> z = Values(8, 1000);
  for (float& value : z) value *= 40;  // exponents that overflow without the largest taken out
  double sum = 0;
  const float largest = *std::max_element(z.begin(), z.end());
  for (const float value : z) sum += std::exp(static_cast<double>(value) - largest);
  for (const int threads : {1, 32, 256, 1000}) {
    std::vector<kernels::SoftmaxSum> parts(threads);
    for (size_t i = 0; i < z.size(); ++i) parts[i % threads] = kernels::Merge(parts[i % threads], {z[i], 1});
    kernels::SoftmaxSum all;
    for (const kernels::SoftmaxSum& part : parts) all = kernels::Merge(all, part);
    EXPECT_EQ(all.largest, largest);
    EXPECT_NEAR(all.sum, sum, 1e-5 * sum);  // a thousand roundings of 6e-8
    EXPECT_NEAR(kernels::LossOf(all, z[17]), std::log(sum) + largest - z[17], 1e-4);
    double total = 0;
    for (size_t i = 0; i < z.size(); ++i) total += kernels::GradientOf(all, z[i], i == 17);
    EXPECT_NEAR(total, 0, 1e-5);  // probabilities sum to one
  }
}

}  // namespace
}  // namespace tessera::worker
