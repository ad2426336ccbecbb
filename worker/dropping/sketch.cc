#include "worker/dropping/sketch.h"

#include "base/split_mix.h"
#include "scheduler/plan/counter_random.h"
#include "worker/dropping/float_view.h"
#include "worker/nn/simd.h"

namespace tessera::worker {

uint64_t SketchSigns(const RuleInput& input, int64_t row) {
  return plan::CounterRandom(SplitMix64(input.seed) ^ static_cast<uint64_t>(row),
                             static_cast<uint64_t>(input.tensor), static_cast<uint64_t>(input.step));
}

std::vector<float> SketchOf(const RuleInput& input) {
  std::vector<float> sketch(SketchElements(input.elements), 0.0f);
  if (input.residual.empty()) return sketch;
  // One projection for all chunks of the tensor: rows of +1 and -1.
  float signs[kSketchNumbers][kChunkElements];
  for (int64_t r = 0; r < kSketchNumbers; ++r) {
    const uint64_t bits = SketchSigns(input, r);
    for (int64_t i = 0; i < kChunkElements; ++i) signs[r][i] = (bits >> i & 1) != 0 ? 1.0f : -1.0f;
  }
  WithValues(input.residual, [&](const auto& value) {
    RunSimd([&]() TESSERA_INLINE {
      for (int64_t chunk = 0; chunk < input.elements / kChunkElements; ++chunk) {
        float x[kChunkElements];
        for (int64_t i = 0; i < kChunkElements; ++i) x[i] = value(chunk * kChunkElements + i);
        for (int64_t r = 0; r < kSketchNumbers; ++r) {
          sketch[chunk * kSketchNumbers + r] =
              LaneSum(kChunkElements, [&](int64_t i) TESSERA_INLINE { return x[i] * signs[r][i]; });
        }
      }
    });
  });
  return sketch;
}

}  // namespace tessera::worker
