#include "worker/cuda/kept_device.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "worker/cuda/launch.h"
#include "worker/dropping/sketch.h"

namespace tessera::cuda {
namespace {

using worker::KeptDevice;
using worker::KeptOperations;
using worker::ResidualView;
using worker::RuleInput;
using worker::Selection;

cudaStream_t Stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

void Check(int error) { C10_CUDA_CHECK(static_cast<cudaError_t>(error)); }

at::Tensor DeviceLongs(int64_t count) { return at::empty({count}, at::device(at::kCUDA).dtype(at::kLong)); }

uint64_t* Words(const at::Tensor& tensor) { return reinterpret_cast<uint64_t*>(tensor.data_ptr<int64_t>()); }

kernels::Residual ResidualOf(const ResidualView& view) { return {view.fp32, view.bf16, view.seed}; }

class CudaOperations final : public KeptOperations {
 public:
  explicit CudaOperations(const Selection& selection) {
    const int64_t words = selection.words();
    words_ = DeviceLongs(words);
    tiles_ = DeviceLongs(kernels::TilesOf(selection.elements()));
    at::Tensor picks;
    if (!selection.picked().empty()) {
      // By way of page-locked memory, whose allocator keeps it until the device has read it.
      const at::Tensor locked = at::empty({words}, at::dtype(at::kLong).pinned_memory(true));
      std::copy(selection.picked().begin(), selection.picked().end(), Words(locked));
      picks = locked.to(at::kCUDA, /*non_blocking=*/true);
    }
    Check(LaunchPrepare(selection.View(picks.defined() ? Words(picks) : nullptr), Words(words_),
                        tiles_.data_ptr<int64_t>(), Stream()));
    prepared_ = {selection.elements(), Words(words_), tiles_.const_data_ptr<int64_t>()};
  }

  void Cut(const float* gradient, bool first, const ResidualView& residual, float* ring) override {
    Check(LaunchCut(prepared_, {gradient, first, ResidualOf(residual), ring}, Stream()));
  }
  void Return(int64_t begin, int64_t end, const float* ring, const ResidualView& residual) override {
    if (residual.fp32 == nullptr && residual.bf16 == nullptr) return;
    Check(LaunchReturn(prepared_, begin, end, ring, ResidualOf(residual), Stream()));
  }
  void Gather(const float* from, float* to) override { Check(LaunchGather(prepared_, from, to, Stream())); }
  void Scatter(const float* from, float* to) override { Check(LaunchScatter(prepared_, from, to, Stream())); }
  void Spread(int64_t begin, int64_t count, const float* ring, float* out) override {
    Check(LaunchSpread(prepared_, begin, count, ring, out, Stream()));
  }
  bool Update(const kernels::UpdateArguments& update) override {
    Check(LaunchUpdate(prepared_, update, Stream()));
    return true;
  }

 private:
  at::Tensor words_, tiles_;
  PreparedSelection prepared_;
};

class CudaKeptDevice final : public KeptDevice {
 public:
  std::unique_ptr<KeptOperations> Prepare(const Selection& selection) override {
    return std::make_unique<CudaOperations>(selection);
  }

  // Waits for the device: holders agree on bitmaps that the host has.
  void Pick(const worker::DroppingRule& rule, const RuleInput& input, absl::Span<uint64_t> words) override {
    const worker::RuleNeeds needs = rule.needs();
    if (!needs.importance.has_value()) return rule.Pick(input, words);  // looks at no tensor
    const auto count = static_cast<int64_t>(words.size());
    const at::Tensor picked = DeviceLongs(count), equal = DeviceLongs(count);
    const at::Tensor tiles = DeviceLongs(kernels::TilesOf(input.elements));
    const at::Tensor counts = DeviceLongs(kernels::kDigitValues), threshold = DeviceLongs(2);
    static_assert(sizeof(kernels::RadixThreshold) <= 2 * sizeof(int64_t));
    PickScratch scratch;
    scratch.counts = reinterpret_cast<unsigned long long*>(counts.data_ptr<int64_t>());  // NOLINT
    scratch.threshold = reinterpret_cast<kernels::RadixThreshold*>(threshold.data_ptr<int64_t>());
    scratch.equal = Words(equal);
    scratch.tiles = tiles.data_ptr<int64_t>();
    Check(LaunchPick(ImportanceOf(input, *needs.importance), input.elements, input.picks, scratch,
                     Words(picked), Stream()));
    const at::Tensor here = picked.to(at::kCPU);
    std::copy_n(Words(here), count, words.begin());
  }

  std::vector<float> Sketch(const RuleInput& input) override {
    std::vector<float> sketch(worker::SketchElements(input.elements), 0.0f);
    if (input.residual.empty() || sketch.empty()) return sketch;
    static_assert(worker::kSketchNumbers == 4 && worker::kChunkElements == kernels::kWordBits);
    uint64_t signs[4];
    for (int row = 0; row < 4; ++row) signs[row] = SketchSigns(input, row);
    const at::Tensor out =
        at::empty({static_cast<int64_t>(sketch.size())}, at::device(at::kCUDA).dtype(at::kFloat));
    Check(LaunchSketch(ImportanceOf(input, kernels::Importance::kResidual),
                       static_cast<int64_t>(sketch.size()) / 4, signs, out.data_ptr<float>(), Stream()));
    const at::Tensor here = out.to(at::kCPU);
    std::copy_n(here.const_data_ptr<float>(), sketch.size(), sketch.begin());
    return sketch;
  }

 private:
  static kernels::ImportanceInput ImportanceOf(const RuleInput& input, kernels::Importance importance) {
    return {importance, input.first_moment, input.second_moment, input.residual.fp32, input.residual.bf16};
  }
};

}  // namespace

std::unique_ptr<KeptDevice> MakeCudaKeptDevice() { return std::make_unique<CudaKeptDevice>(); }

void SoftmaxLossOnDevice(const at::Tensor& logits, const at::Tensor& targets, int64_t ignored, bool gradient,
                         const at::Tensor& losses) {
  Check(LaunchSoftmaxLoss(logits.data_ptr<float>(), targets.const_data_ptr<int64_t>(), logits.size(0),
                          logits.size(1), ignored, gradient, losses.data_ptr<float>(), Stream()));
}

}  // namespace tessera::cuda
