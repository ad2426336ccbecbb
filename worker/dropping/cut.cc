#include "worker/dropping/cut.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/split_mix.h"
#include "worker/dropping/float_view.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::worker {
namespace {

constexpr int64_t kWordBits = 64;

// With AVX-512 sixteen elements are packed or spread out by one instruction. `bits` is a word of the bitmap,
// `tensor` its 64 elements, of which the selected ones may be touched alone.
#if defined(__x86_64__)
#define TESSERA_AVX512 __attribute__((target("avx512f")))
bool HasAvx512() {
  static const bool has = __builtin_cpu_supports("avx512f") != 0;
  return has;
}

enum class Into : uint8_t { kWrite, kAdd };

// What is read of the tensor is set to zero if `drain`.
TESSERA_AVX512 float* PackWord(uint64_t bits, float* tensor, Into into, bool drain, float* ring) {
  for (int lane = 0; lane < kWordBits; lane += 16, tensor += 16) {
    const auto mask = static_cast<__mmask16>(bits >> lane);
    if (mask == 0) continue;
    const auto count = std::popcount(static_cast<uint32_t>(mask));
    const auto front = static_cast<__mmask16>((1u << count) - 1);
    __m512 packed = _mm512_maskz_compress_ps(mask, _mm512_maskz_loadu_ps(mask, tensor));
    if (into == Into::kAdd) packed = _mm512_add_ps(packed, _mm512_maskz_loadu_ps(front, ring));
    _mm512_mask_storeu_ps(ring, front, packed);
    if (drain) _mm512_mask_storeu_ps(tensor, mask, _mm512_setzero_ps());
    ring += count;
  }
  return ring;
}

TESSERA_AVX512 const float* SpreadWord(uint64_t bits, const float* ring, float* out) {
  for (int lane = 0; lane < kWordBits; lane += 16, out += 16) {
    const auto mask = static_cast<__mmask16>(bits >> lane);
    _mm512_storeu_ps(out, _mm512_maskz_expandloadu_ps(mask, ring));
    ring += std::popcount(static_cast<uint32_t>(mask));
  }
  return ring;
}
#endif

// Calls visit(first element, bits) for every word of the bitmap, ascending.
template <typename Visit>
void ForEachWord(const Selection& selection, int64_t first_word, int64_t words, Visit&& visit) {
  uint64_t bitmap[Selection::kBlockWords];
  for (int64_t word = first_word; word < first_word + words; word += Selection::kBlockWords) {
    const int64_t count = std::min(Selection::kBlockWords, first_word + words - word);
    selection.Read(word, absl::MakeSpan(bitmap, count));
    for (int64_t w = 0; w < count; ++w) visit((word + w) * kWordBits, bitmap[w]);
  }
}

// Calls visit(element) for every kept element, ascending.
template <typename Visit>
void ForEachKept(const Selection& selection, int64_t first_word, int64_t words, Visit&& visit) {
  ForEachWord(selection, first_word, words, [&](int64_t first, uint64_t bits) {
    for (; bits != 0; bits &= bits - 1) visit(first + std::countr_zero(bits));
  });
}

// Kept elements of the tensor -> ring, written or added; zero in the tensor afterwards if `drain`.
void Pack(const Selection& selection, float* tensor, bool first, bool drain, float* ring) {
#if defined(__x86_64__)
  if (HasAvx512()) {
    const Into into = first ? Into::kWrite : Into::kAdd;
    ForEachWord(selection, 0, selection.words(), [&](int64_t begin, uint64_t bits) {
      ring = PackWord(bits, tensor + begin, into, drain, ring);
    });
    return;
  }
#endif
  ForEachKept(selection, 0, selection.words(), [&](int64_t i) {
    *ring = first ? tensor[i] : *ring + tensor[i];
    if (drain) tensor[i] = 0;
    ++ring;
  });
}

void CutWithFloats(const Selection& selection, const float* gradient, bool first, float* residual,
                   float* ring) {
  if (gradient != nullptr) {
    for (int64_t i = 0; i < selection.elements(); ++i) residual[i] += gradient[i];
  }
  Pack(selection, residual, first, /*drain=*/true, ring);
}

// One pass, as a sum must not be rounded before it is known to stay.
void CutWithBf16(const Selection& selection, const float* gradient, bool first, const ResidualView& residual,
                 float* ring) {
  uint64_t bitmap[Selection::kBlockWords];
  for (int64_t word = 0; word < selection.words(); word += Selection::kBlockWords) {
    const int64_t count = std::min(Selection::kBlockWords, selection.words() - word);
    selection.Read(word, absl::MakeSpan(bitmap, count));
    for (int64_t w = 0; w < count; ++w) {
      const int64_t begin = (word + w) * kWordBits;
      const int64_t end = std::min(begin + kWordBits, selection.elements());
      for (int64_t i = begin; i < end; ++i) {
        const float sum = FromBf16(residual.bf16[i]) + (gradient != nullptr ? gradient[i] : 0);
        if ((bitmap[w] >> (i - begin) & 1) != 0) {
          *ring = first ? sum : *ring + sum;
          residual.bf16[i] = 0;
          ++ring;
        } else if (gradient != nullptr) {
          const uint64_t draw = SplitMix64(residual.seed ^ static_cast<uint64_t>(i));
          residual.bf16[i] = ToBf16(sum, static_cast<uint32_t>(draw));
        }
      }
    }
  }
}

}  // namespace

void CutGradient(const Selection& selection, const float* gradient, bool first, const ResidualView& residual,
                 float* ring) {
  if (residual.fp32 != nullptr) {
    CutWithFloats(selection, gradient, first, residual.fp32, ring);
  } else if (residual.bf16 != nullptr) {
    CutWithBf16(selection, gradient, first, residual, ring);
  } else if (gradient == nullptr) {
    if (first) std::fill_n(ring, selection.kept(), 0.0f);
  } else if (first) {
    GatherKept(selection, gradient, ring);
  } else {
    ForEachKept(selection, 0, selection.words(),
                [&, out = ring](int64_t i) mutable { *out++ += gradient[i]; });
  }
}

void ReturnKept(const Selection& selection, int64_t begin, int64_t end, const float* ring,
                const ResidualView& residual) {
  if (residual.fp32 == nullptr && residual.bf16 == nullptr) return;
  ForEachKept(selection, 0, selection.words(), [&, kept = int64_t{0}](int64_t i) mutable {
    const int64_t k = kept++;
    if (k < begin || k >= end) return;
    if (residual.fp32 != nullptr) {
      residual.fp32[i] = ring[k];
    } else {
      const uint64_t draw = SplitMix64(residual.seed ^ static_cast<uint64_t>(i));
      residual.bf16[i] = ToBf16(ring[k], static_cast<uint32_t>(draw));
    }
  });
}

int64_t KeptReader::Spread(int64_t count, float* out) {
  TESSERA_CHECK(count % kWordBits == 0 || position_ + count == selection_->elements());
  const float* const begin = ring_;
#if defined(__x86_64__)
  if (HasAvx512()) {
    ForEachWord(*selection_, position_ / kWordBits, count / kWordBits, [&](int64_t first, uint64_t bits) {
      ring_ = SpreadWord(bits, ring_, out + (first - position_));
    });
    out += count / kWordBits * kWordBits;
    position_ += count / kWordBits * kWordBits;
    count %= kWordBits;
    if (count == 0) return ring_ - begin;
  }
#endif
  std::fill_n(out, count, 0.0f);
  ForEachKept(*selection_, position_ / kWordBits, (count + kWordBits - 1) / kWordBits,
              [&](int64_t i) { out[i - position_] = *ring_++; });
  position_ += count;
  return ring_ - begin;
}

void GatherKept(const Selection& selection, const float* from, float* to) {
  if (selection.kept() == selection.elements()) {
    std::memcpy(to, from, sizeof(float) * static_cast<size_t>(selection.kept()));
    return;
  }
  Pack(selection, const_cast<float*>(from), /*first=*/true, /*drain=*/false, to);
}

void ScatterKept(const Selection& selection, const float* from, float* to) {
  ForEachKept(selection, 0, selection.words(), [&, in = from](int64_t i) mutable { to[i] = *in++; });
}

}  // namespace tessera::worker
