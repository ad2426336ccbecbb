// The portable parts of the CUDA kernels, run by loops on the host as a device's blocks and threads would:
// what is left to the device alone are scans, shuffles and atomics.
#pragma once

#include <vector>

#include "scheduler/plan/counter_random.h"
#include "worker/dropping/kept_operations.h"
#include "worker/dropping/sketch.h"
#include "worker/kernels/importance.h"

namespace tessera::worker {

inline kernels::ImportanceInput ImportanceOf(const RuleInput& input, kernels::Importance importance) {
  return {.importance = importance,
          .first_moment = input.first_moment,
          .second_moment = input.second_moment,
          .residual_fp32 = input.residual.fp32,
          .residual_bf16 = input.residual.bf16};
}

class PortableOperations final : public KeptOperations {
 public:
  explicit PortableOperations(const Selection& selection) : elements_(selection.elements()) {
    const kernels::SelectionView view = selection.View(selection.picked().data());
    int64_t kept = 0;
    for (int64_t tile = 0; tile < kernels::TilesOf(elements_); ++tile) {
      tiles_.push_back(kept);
      for (int64_t w = tile * kernels::kTileWords; w < (tile + 1) * kernels::kTileWords; ++w) {
        if (w >= kernels::WordsOf(elements_)) break;
        words_.push_back(kernels::SelectedWord(view, w));
        kept += kernels::CountBits(words_.back());
      }
    }
  }

  const std::vector<uint64_t>& words() const { return words_; }

  void Cut(const float* gradient, bool first, const ResidualView& residual, float* ring) override {
    const kernels::CutArguments cut{gradient, first, PortableResidual(residual), ring};
    ForEach([&](int64_t i, bool kept, int64_t rank) { kernels::CutElement(cut, i, kept, rank); });
  }
  void Return(int64_t begin, int64_t end, const float* ring, const ResidualView& residual) override {
    ForEach([&](int64_t i, bool kept, int64_t rank) {
      if (kept) kernels::ReturnElement(ring, begin, end, PortableResidual(residual), i, rank);
    });
  }
  void Gather(const float* from, float* to) override {
    ForEach([&](int64_t i, bool kept, int64_t rank) {
      if (kept) to[rank] = from[i];
    });
  }
  void Scatter(const float* from, float* to) override {
    ForEach([&](int64_t i, bool kept, int64_t rank) {
      if (kept) to[i] = from[rank];
    });
  }
  void Spread(int64_t begin, int64_t count, const float* ring, float* out) override {
    ForEach([&](int64_t i, bool kept, int64_t rank) {
      if (i >= begin && i < begin + count) out[i - begin] = kept ? ring[rank] : 0.0f;
    });
  }
  bool Update(const kernels::UpdateArguments& update) override {
    ForEach([&](int64_t i, bool kept, int64_t rank) { kernels::UpdateElement(update, i, kept, rank); });
    return true;
  }

 private:
  static kernels::Residual PortableResidual(const ResidualView& view) {
    return {view.fp32, view.bf16, view.seed};
  }

  // As the kernel: a tile to a block, a word's place from the words before it in the tile.
  template <typename Body>
  void ForEach(const Body& body) const {
    for (int64_t tile = 0; tile < static_cast<int64_t>(tiles_.size()); ++tile) {
      int64_t before = 0;
      for (int64_t w = tile * kernels::kTileWords; w < (tile + 1) * kernels::kTileWords; ++w) {
        if (w >= static_cast<int64_t>(words_.size())) break;
        for (int bit = 0; bit < kernels::kWordBits; ++bit) {
          const int64_t element = w * kernels::kWordBits + bit;
          if (element >= elements_) break;
          body(element, (words_[w] >> bit & 1) != 0,
               tiles_[tile] + before + kernels::RankInWord(words_[w], bit));
        }
        before += kernels::CountBits(words_[w]);
      }
    }
  }

  int64_t elements_;
  std::vector<uint64_t> words_;
  std::vector<int64_t> tiles_;
};

// The passes of LaunchPick.
inline void PortablePick(const kernels::ImportanceInput& input, int64_t elements, int64_t picks,
                         absl::Span<uint64_t> words) {
  for (uint64_t& word : words) word = 0;
  if (picks <= 0) return;
  kernels::RadixThreshold threshold{0, picks};
  for (int pass = 0; pass < kernels::kDigits; ++pass) {
    const kernels::Digit digit = kernels::DigitOfPass(pass);
    std::vector<int64_t> counts(kernels::kDigitValues, 0);
    for (int64_t i = 0; i < elements; ++i) {
      const int value = kernels::DigitOfKey(kernels::KeyOfElement(input, i), threshold, digit);
      if (value >= 0) ++counts[value];
    }
    threshold = kernels::NextThreshold(threshold, digit, counts.data());
  }
  int64_t before = 0;
  for (int64_t w = 0; w < kernels::WordsOf(elements); ++w) {
    uint64_t equal = 0;
    for (int bit = 0; bit < kernels::kWordBits && w * kernels::kWordBits + bit < elements; ++bit) {
      const uint32_t key = kernels::KeyOfElement(input, w * kernels::kWordBits + bit);
      words[w] |= static_cast<uint64_t>(key > threshold.key) << bit;
      equal |= static_cast<uint64_t>(key == threshold.key) << bit;
    }
    if (threshold.ties > before) words[w] |= kernels::LowestBits(equal, threshold.ties - before);
    before += kernels::CountBits(equal);
  }
}

class PortableKeptDevice final : public KeptDevice {
 public:
  std::unique_ptr<KeptOperations> Prepare(const Selection& selection) override {
    return std::make_unique<PortableOperations>(selection);
  }
  void Pick(const DroppingRule& rule, const RuleInput& input, absl::Span<uint64_t> words) override {
    const RuleNeeds needs = rule.needs();
    if (!needs.importance.has_value()) return rule.Pick(input, words);
    PortablePick(ImportanceOf(input, *needs.importance), input.elements, input.picks, words);
  }
  std::vector<float> Sketch(const RuleInput& input) override {
    std::vector<float> sketch(SketchElements(input.elements), 0.0f);
    const kernels::ImportanceInput values = ImportanceOf(input, kernels::Importance::kResidual);
    for (size_t i = 0; i < sketch.size() && !input.residual.empty(); ++i) {
      sketch[i] = kernels::SketchNumber(values, static_cast<int64_t>(i) / kSketchNumbers,
                                        SketchSigns(input, static_cast<int64_t>(i) % kSketchNumbers));
    }
    return sketch;
  }
};

}  // namespace tessera::worker
