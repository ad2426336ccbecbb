#include "worker/data/sampler.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"
#include "base/split_mix.h"

namespace tessera::worker {
namespace {

// A permutation of [0, 4^half_bits) by a Feistel network: each round xors one
// half with a hash of the other, so it can be undone whatever the hash.
uint64_t Permute(uint64_t value, int half_bits, uint64_t key) {
  constexpr int kRounds = 6;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t mixed = left ^ (SplitMix64(key + static_cast<uint64_t>(round) + (right << 8)) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

}  // namespace

Sampler::Sampler(int64_t samples, uint64_t seed, int64_t end) : samples_(samples), seed_(seed), end_(end) {
  TESSERA_CHECK(samples > 0);
}

int64_t Sampler::At(int64_t position) const {
  TESSERA_CHECK(position >= 0);
  const uint64_t size = static_cast<uint64_t>(samples_);
  const uint64_t pass = static_cast<uint64_t>(position / samples_);
  const uint64_t key = SplitMix64(SplitMix64(seed_) + pass);
  const int half_bits = std::max(1, static_cast<int>(std::bit_width(size - 1) + 1) / 2);
  // Cycle walking: results outside the set are permuted again. The network's domain is at
  // most four times the set, so this takes four rounds on average at worst.
  uint64_t value = static_cast<uint64_t>(position % samples_);
  do {
    value = Permute(value, half_bits, key);
  } while (value >= size);
  return static_cast<int64_t>(value);
}

std::vector<Sample> Sampler::MicroBatch(int64_t step, int micro_step, int accumulation, int rank,
                                        std::span<const int64_t> shares) const {
  // A step takes accumulation times the sum of the shares positions in a row; each
  // rank a contiguous part of it, each micro-step a contiguous part of that.
  const int64_t together = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  const int64_t before = std::accumulate(shares.begin(), shares.begin() + rank, int64_t{0});
  const int64_t batch = shares[rank];
  const int64_t first = accumulation * (step * together + before) + micro_step * batch;
  std::vector<Sample> batch_samples;
  for (int64_t position = first; position < std::min(first + batch, end_); ++position) {
    // Odd, so never the 0 of an undisturbed reading.
    batch_samples.push_back(
        {At(position), SplitMix64(SplitMix64(~seed_) + static_cast<uint64_t>(position)) | 1});
  }
  return batch_samples;
}

bool Sampler::EndsWith(int64_t step, int accumulation, std::span<const int64_t> shares) const {
  return (step + 1) * accumulation * std::accumulate(shares.begin(), shares.end(), int64_t{0}) >= end_;
}

}  // namespace tessera::worker
