#include "worker/dropping/cut.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/split_mix.h"
#include "worker/dropping/avx512.h"
#include "worker/dropping/float_view.h"

namespace tessera::worker {
namespace {

constexpr int64_t kWordBits = 64;

// A block of the bitmap and the elements that it is about.
struct Block {
  int64_t begin = 0, end = 0;  // elements of the tensor
  const uint64_t* words = nullptr;
  int64_t count = 0;  // of words
};

// Calls visit(block) for a part of the bitmap, ascending.
template <typename Visit>
void ForEachBlock(const Selection& selection, int64_t first_word, int64_t words, Visit&& visit) {
  uint64_t bitmap[Selection::kBlockWords];
  for (int64_t word = first_word; word < first_word + words; word += Selection::kBlockWords) {
    const int64_t count = std::min(Selection::kBlockWords, first_word + words - word);
    selection.Read(word, absl::MakeSpan(bitmap, count));
    visit(Block{word * kWordBits, std::min((word + count) * kWordBits, selection.elements()), bitmap, count});
  }
}

// With AVX-512 sixteen elements are packed or spread out by one instruction. Elements behind the tensor's
// last have no bit, and are not touched; the ring is not touched behind ring_end.
#if defined(__x86_64__)
enum class Into : uint8_t { kWrite, kAdd };

TESSERA_AVX512 inline float* Put(__mmask16 mask, __m512 values, Into into, float* ring,
                                 const float* ring_end) {
  const auto count = std::popcount(static_cast<uint32_t>(mask));
  const __m512 packed = _mm512_maskz_compress_ps(mask, values);
  if (into == Into::kWrite && ring + 16 <= ring_end) {
    _mm512_storeu_ps(ring, packed);  // what comes next is written over the zeros
  } else {
    const auto front = static_cast<__mmask16>((1u << count) - 1);
    const __m512 before = into == Into::kAdd ? _mm512_maskz_loadu_ps(front, ring) : _mm512_setzero_ps();
    _mm512_mask_storeu_ps(ring, front, into == Into::kAdd ? _mm512_add_ps(before, packed) : packed);
  }
  return ring + count;
}

// Selected elements of the tensor -> ring.
TESSERA_AVX512 float* PackBlock(const Block& block, const float* tensor, Into into, float* ring,
                                const float* ring_end) {
  const float* from = tensor + block.begin;
  for (int64_t w = 0; w < block.count; ++w) {
    for (int lane = 0; lane < kWordBits; lane += 16, from += 16) {
      const auto mask = static_cast<__mmask16>(block.words[w] >> lane);
      ring = Put(mask, _mm512_maskz_loadu_ps(mask, from), into, ring, ring_end);
    }
  }
  return ring;
}

// Adds the gradient, if there is one, to the residual; what is selected goes to the ring instead.
TESSERA_AVX512 float* PackSums(const Block& block, const float* gradient, Into into, float* residual,
                               float* ring, const float* ring_end) {
  int64_t element = block.begin;
  for (int64_t w = 0; w < block.count; ++w) {
    for (int lane = 0; lane < kWordBits && element < block.end; lane += 16, element += 16) {
      const auto mask = static_cast<__mmask16>(block.words[w] >> lane);
      const int64_t left = block.end - element;
      const auto there = static_cast<__mmask16>(left >= 16 ? 0xffff : (1u << left) - 1);
      __m512 sum = _mm512_maskz_loadu_ps(there, residual + element);
      if (gradient != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(there, gradient + element));
      ring = Put(mask, sum, into, ring, ring_end);
      _mm512_mask_storeu_ps(residual + element, there,
                            _mm512_maskz_mov_ps(static_cast<__mmask16>(~mask), sum));
    }
  }
  return ring;
}

// Whole words alone: ring -> out, zeros for what is not selected.
TESSERA_AVX512 const float* SpreadBlock(const Block& block, const float* ring, float* out) {
  for (int64_t w = 0; w < block.count; ++w) {
    for (int lane = 0; lane < kWordBits; lane += 16, out += 16) {
      const auto mask = static_cast<__mmask16>(block.words[w] >> lane);
      _mm512_storeu_ps(out, _mm512_maskz_expandloadu_ps(mask, ring));
      ring += std::popcount(static_cast<uint32_t>(mask));
    }
  }
  return ring;
}
#endif

// Calls visit(element) for every kept element, ascending.
template <typename Visit>
void ForEachKept(const Selection& selection, int64_t first_word, int64_t words, Visit&& visit) {
  ForEachBlock(selection, first_word, words, [&](const Block& block) {
    for (int64_t w = 0; w < block.count; ++w) {
      const int64_t first = block.begin + w * kWordBits;
      for (uint64_t bits = block.words[w]; bits != 0; bits &= bits - 1) visit(first + std::countr_zero(bits));
    }
  });
}

// Kept elements of the tensor -> ring, written or added.
void Pack(const Selection& selection, const float* tensor, bool first, float* ring) {
#if defined(__x86_64__)
  if (HasAvx512()) {
    const float* const end = ring + selection.kept();
    ForEachBlock(selection, 0, selection.words(), [&](const Block& block) {
      ring = PackBlock(block, tensor, first ? Into::kWrite : Into::kAdd, ring, end);
    });
    return;
  }
#endif
  ForEachKept(selection, 0, selection.words(), [&](int64_t i) {
    *ring = first ? tensor[i] : *ring + tensor[i];
    ++ring;
  });
}

void CutWithFloats(const Selection& selection, const float* gradient, bool first, float* residual,
                   float* ring) {
#if defined(__x86_64__)
  if (HasAvx512()) {
    const float* const end = ring + selection.kept();
    ForEachBlock(selection, 0, selection.words(), [&](const Block& block) {
      ring = PackSums(block, gradient, first ? Into::kWrite : Into::kAdd, residual, ring, end);
    });
    return;
  }
#endif
  if (gradient != nullptr) {
    for (int64_t i = 0; i < selection.elements(); ++i) residual[i] += gradient[i];
  }
  ForEachKept(selection, 0, selection.words(), [&](int64_t i) {
    *ring = first ? residual[i] : *ring + residual[i];
    residual[i] = 0;
    ++ring;
  });
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
    Pack(selection, gradient, /*first=*/false, ring);
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
    ForEachBlock(*selection_, position_ / kWordBits, count / kWordBits, [&](const Block& block) {
      ring_ = SpreadBlock(block, ring_, out + (block.begin - position_));
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
  Pack(selection, from, /*first=*/true, to);
}

void ScatterKept(const Selection& selection, const float* from, float* to) {
  ForEachKept(selection, 0, selection.words(), [&, in = from](int64_t i) mutable { to[i] = *in++; });
}

}  // namespace tessera::worker
