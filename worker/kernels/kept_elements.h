// What happens to each element of a gradient of which a selection is kept, as worker/dropping/cut.h defines
// it, one thread to an element; and the bitmap itself, one thread to a word.
//
// A kept element's place in the ring is the number of kept ones before it: of the tiles before its tile
// (TilesOf, summed up once per step), of the words before its word in the tile, and within its word.
#pragma once

#include "base/split_mix.h"
#include "worker/kernels/portable.h"

namespace tessera::kernels {

// Selection's own terms.
struct SelectionView {
  int64_t elements = 0;
  int64_t kept = 0;
  int64_t stride = 1;               // of the rotation
  int64_t start = 0, length = 0;    // its window
  const uint64_t* picks = nullptr;  // [words]; null: none
};

// Bitmap of elements 64 * word and on, like Selection::Read.
TESSERA_PORTABLE uint64_t SelectedWord(const SelectionView& selection, int64_t word) {
  const uint64_t inside = BitsInside(selection.elements, word);
  if (inside == 0 || selection.kept == selection.elements) return inside;
  uint64_t bits = 0;
  if (selection.length > 0) {
    const int64_t n = selection.elements;
    int64_t distance = word * kWordBits % n * selection.stride % n - selection.start;
    if (distance < 0) distance += n;
    for (int i = 0; i < kWordBits; ++i) {
      bits |= static_cast<uint64_t>(distance < selection.length ? 1 : 0) << i;
      distance += selection.stride;
      if (distance >= n) distance -= n;
    }
  }
  if (selection.picks != nullptr) bits |= selection.picks[word];
  return bits & inside;
}

// At most one of the pointers is set.
struct Residual {
  float* fp32 = nullptr;
  uint16_t* bf16 = nullptr;
  uint64_t seed = 0;
};

TESSERA_PORTABLE float FromBf16Bits(uint16_t bits) { return FloatOf(static_cast<uint32_t>(bits) << 16); }

TESSERA_PORTABLE uint16_t StochasticBf16(float value, uint64_t seed, int64_t element) {
  const uint64_t draw = SplitMix64(seed ^ static_cast<uint64_t>(element));
  return static_cast<uint16_t>((BitsOf(value) + static_cast<uint32_t>(draw & 0xffff)) >> 16);
}

struct CutArguments {
  const float* gradient = nullptr;  // [elements]; null: zeros
  bool first = true;                // the ring is written, else added to
  Residual residual;
  float* ring = nullptr;  // [kept]
};

// rank: of a kept element, its place in the ring.
TESSERA_PORTABLE void CutElement(const CutArguments& arguments, int64_t element, bool kept, int64_t rank) {
  const Residual& residual = arguments.residual;
  const bool has = residual.fp32 != nullptr || residual.bf16 != nullptr;
  float value = arguments.gradient != nullptr ? arguments.gradient[element] : 0.0f;
  if (residual.fp32 != nullptr) value = residual.fp32[element] + value;
  if (residual.bf16 != nullptr) value = FromBf16Bits(residual.bf16[element]) + value;
  if (kept) {
    arguments.ring[rank] = arguments.first ? value : arguments.ring[rank] + value;
    if (residual.fp32 != nullptr) residual.fp32[element] = 0;
    if (residual.bf16 != nullptr) residual.bf16[element] = 0;
  } else if (has && arguments.gradient != nullptr) {
    if (residual.fp32 != nullptr) residual.fp32[element] = value;
    if (residual.bf16 != nullptr) residual.bf16[element] = StochasticBf16(value, residual.seed, element);
  }
}

// Of kept elements alone: those at [begin, end) of the ring go back.
TESSERA_PORTABLE void ReturnElement(const float* ring, int64_t begin, int64_t end, const Residual& residual,
                                    int64_t element, int64_t rank) {
  if (rank < begin || rank >= end) return;
  if (residual.fp32 != nullptr) residual.fp32[element] = ring[rank];
  if (residual.bf16 != nullptr) residual.bf16[element] = StochasticBf16(ring[rank], residual.seed, element);
}

// The fused AdamW of LibTorch (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2), one element.
struct AdamWStep {
  float learning_rate = 0;
  float beta1 = 0, beta2 = 0;
  float epsilon = 0;
  float weight_decay = 0;
  float divisor = 1;           // of the gradient: contributed tokens over the clip factor
  float correction1 = 1;       // 1 - beta1^step
  float root_correction2 = 1;  // sqrt(1 - beta2^step)
};

TESSERA_PORTABLE void AdamWElement(const AdamWStep& step, float gradient, float* parameter, float* first,
                                   float* second) {
  const float g = gradient / step.divisor;
  const float decayed = *parameter - step.learning_rate * step.weight_decay * *parameter;
  const float m = *first + (1.0f - step.beta1) * (g - *first);
  const float v = step.beta2 * *second + (1.0f - step.beta2) * g * g;
#ifdef __CUDA_ARCH__
  const float root = sqrtf(v);
#else
  const float root = __builtin_sqrtf(v);
#endif
  *first = m;
  *second = v;
  *parameter =
      decayed - step.learning_rate / step.correction1 * m / (root / step.root_correction2 + step.epsilon);
}

struct UpdateArguments {
  AdamWStep step;
  bool freeze_unsent = false;  // leave what was not sent alone; else its gradient is zero
  const float* ring = nullptr;
  float* parameters = nullptr;
  float* first = nullptr;
  float* second = nullptr;
};

TESSERA_PORTABLE void UpdateElement(const UpdateArguments& update, int64_t element, bool kept, int64_t rank) {
  if (!kept && update.freeze_unsent) return;
  AdamWElement(update.step, kept ? update.ring[rank] : 0.0f, update.parameters + element,
               update.first + element, update.second + element);
}

}  // namespace tessera::kernels
