#include "worker/dropping/kept_operations.h"

#include <optional>

#include "worker/dropping/sketch.h"

namespace tessera::worker {
namespace {

class HostOperations final : public KeptOperations {
 public:
  explicit HostOperations(const Selection* selection) : selection_(selection) {}

  void Cut(const float* gradient, bool first, const ResidualView& residual, float* ring) override {
    CutGradient(*selection_, gradient, first, residual, ring);
  }
  void Return(int64_t begin, int64_t end, const float* ring, const ResidualView& residual) override {
    ReturnKept(*selection_, begin, end, ring, residual);
  }
  void Gather(const float* from, float* to) override { GatherKept(*selection_, from, to); }
  void Scatter(const float* from, float* to) override { ScatterKept(*selection_, from, to); }
  void Spread(int64_t begin, int64_t count, const float* ring, float* out) override {
    if (begin == 0) reader_.emplace(selection_, ring);
    reader_->Spread(count, out);
  }

 private:
  const Selection* selection_;
  std::optional<KeptReader> reader_;
};

class Host final : public KeptDevice {
 public:
  std::unique_ptr<KeptOperations> Prepare(const Selection& selection) override {
    return std::make_unique<HostOperations>(&selection);
  }
  void Pick(const DroppingRule& rule, const RuleInput& input, absl::Span<uint64_t> words) override {
    rule.Pick(input, words);
  }
  std::vector<float> Sketch(const RuleInput& input) override { return SketchOf(input); }
};

}  // namespace

KeptDevice& HostKeptDevice() {
  static Host host;
  return host;
}

}  // namespace tessera::worker
