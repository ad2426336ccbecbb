#include "worker/data/synthetic_dataset.h"

#include <torch/types.h>

#include "base/split_mix.h"

namespace tessera::worker {
namespace {

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(const ModelInput& input, int64_t samples, int64_t length, uint64_t seed)
      : input_(input), samples_(samples), length_(length), seed_(seed) {}

  int64_t samples() const override { return samples_; }
  absl::Status Check(const ModelInput&) const override { return absl::OkStatus(); }

  absl::StatusOr<Batch> Read(std::span<const Sample> samples) const override {
    const auto rows = static_cast<int64_t>(samples.size());
    Batch batch;
    const bool image = input_.vocab_size == 0;
    batch.inputs = image ? at::empty({rows, input_.channels, input_.height, input_.width})
                         : at::empty({rows, length_}, at::kLong);
    const bool each_token = input_.task == Task::kNextToken || input_.task == Task::kMaskedToken;
    batch.targets = each_token ? at::empty({rows, length_}, at::kLong) : at::empty({rows}, at::kLong);
    batch.target_count = batch.targets.numel();
    for (int64_t row = 0; row < rows; ++row) {
      const uint64_t key = SplitMix64(SplitMix64(seed_) + static_cast<uint64_t>(samples[row].index));
      at::Tensor targets = batch.targets[row];
      Fill(key, each_token ? input_.vocab_size : input_.classes, targets);
      if (input_.task == Task::kMaskedToken) batch.target_count -= Hide(key, targets);
      at::Tensor inputs = batch.inputs[row];
      if (image) {
        float* pixels = inputs.mutable_data_ptr<float>();
        for (int64_t i = 0; i < inputs.numel(); ++i) {
          // Uniform with mean 0 and deviation 1.
          pixels[i] =
              (static_cast<float>(SplitMix64(~key + static_cast<uint64_t>(i)) >> 40) * 0x1p-24F - 0.5F) *
              3.4641016F;
        }
      } else {
        Fill(~key, input_.vocab_size, inputs);
      }
    }
    return batch;
  }

 private:
  static void Fill(uint64_t key, int64_t below, at::Tensor& out) {
    int64_t* data = out.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < out.numel(); ++i) {
      data[i] =
          static_cast<int64_t>(SplitMix64(key + static_cast<uint64_t>(i)) % static_cast<uint64_t>(below));
    }
  }

  // Leaves the share of the targets that real texts are asked for; how many others there were.
  static int64_t Hide(uint64_t key, at::Tensor& targets) {
    constexpr uint64_t kAsked = 15;  // of 100
    int64_t* data = targets.mutable_data_ptr<int64_t>();
    int64_t hidden = 0;
    for (int64_t i = 0; i < targets.numel(); ++i) {
      if (SplitMix64(SplitMix64(key) + static_cast<uint64_t>(i)) % 100 < kAsked) continue;
      data[i] = kIgnoredTarget;
      ++hidden;
    }
    return hidden;
  }

  const ModelInput input_;
  const int64_t samples_, length_;
  const uint64_t seed_;
};

}  // namespace

std::unique_ptr<Dataset> MakeSyntheticDataset(const ModelInput& input, int64_t samples, int64_t length,
                                              uint64_t seed) {
  return std::make_unique<SyntheticDataset>(input, samples, length, seed);
}

}  // namespace tessera::worker
