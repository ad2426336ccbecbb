// sketch_top_k: whole chunks with the largest summed residuals, as a sketch estimates them (sketch.h).
#include <algorithm>

#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/sketch.h"
#include "worker/dropping/top_k.h"

namespace tessera::worker {
namespace {

class SketchTopK final : public DroppingRule {
 public:
  absl::string_view name() const override { return "sketch_top_k"; }
  RuleNeeds needs() const override {
    return {.residual = true, .agreement = RuleAgreement::kSketch, .default_share = 1};
  }
  void Pick(const RuleInput& input, absl::Span<uint64_t> words) const override {
    static_assert(kChunkElements == 64);  // a chunk is a word
    const int64_t chunks = input.elements / kChunkElements;
    const int64_t picks = std::min(chunks, input.picks / kChunkElements);
    std::vector<uint64_t> picked((chunks + 63) / 64);
    MarkLargest(
        chunks, picks,
        [sketch = input.sketch.data()](int64_t chunk) {
          float squares = 0;
          for (int64_t r = 0; r < kSketchNumbers; ++r) {
            squares += sketch[chunk * kSketchNumbers + r] * sketch[chunk * kSketchNumbers + r];
          }
          return KeyOf(squares);
        },
        absl::MakeSpan(picked));
    std::fill(words.begin(), words.end(), 0);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      if ((picked[chunk >> 6] >> (chunk & 63) & 1) != 0) words[chunk] = ~uint64_t{0};
    }
  }
};

TESSERA_REGISTER_DROPPING_RULE(SketchTopK);

}  // namespace
}  // namespace tessera::worker
