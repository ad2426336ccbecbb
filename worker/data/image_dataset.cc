#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/data/image_source.h"

namespace tessera::worker {
namespace {

// What a draw does to an image.
struct Distortion {
  int64_t down = 0, right = 0;
  bool mirrored = false;
};

Distortion DistortionOf(uint64_t draw, const ImageFormat& format) {
  if (draw == 0) return {};
  const int64_t reach_y = format.height / 8, reach_x = format.width / 8;
  Distortion distortion;
  // Far apart bits of a mixed number; the remainders are even enough at a few pixels.
  distortion.down = static_cast<int64_t>((draw >> 8) % (2 * reach_y + 1)) - reach_y;
  distortion.right = static_cast<int64_t>((draw >> 24) % (2 * reach_x + 1)) - reach_x;
  distortion.mirrored = format.mirrored && (draw >> 60 & 1) != 0;
  return distortion;
}

// One channel of an image, moved, mirrored and standardised. What comes in is black.
void Standardise(const uint8_t* pixels, const ImageFormat& format, const Distortion& distortion, float mean,
                 float deviation, float* out) {
  const float scale = 1 / (255 * deviation), shift = -mean / deviation;
  for (int64_t y = 0; y < format.height; ++y) {
    const int64_t from_y = y - distortion.down;
    for (int64_t x = 0; x < format.width; ++x) {
      const int64_t moved = x - distortion.right;
      const int64_t from_x = distortion.mirrored ? format.width - 1 - moved : moved;
      const bool inside = from_y >= 0 && from_y < format.height && from_x >= 0 && from_x < format.width;
      const uint8_t pixel = inside ? pixels[from_y * format.width + from_x] : 0;
      out[y * format.width + x] = static_cast<float>(pixel) * scale + shift;
    }
  }
}

class ImageDataset final : public Dataset {
 public:
  ImageDataset(std::unique_ptr<ImageSource> source, const ImageOptions& options)
      : source_(std::move(source)), options_(options) {}

  int64_t samples() const override { return source_->images(); }

  absl::Status Check(const ModelInput& input) const override {
    if (input.task != Task::kImageClass) {
      return absl::InvalidArgumentError("images train models that classify images");
    }
    const ImageFormat& format = source_->format();
    const bool repeated = format.channels == 1 && options_.channels == input.channels;
    if (format.height != input.height || format.width != input.width ||
        (format.channels != input.channels && !repeated)) {
      return absl::InvalidArgumentError(
          absl::StrCat("its images are ", format.channels, " x ", format.height, " x ", format.width,
                       ", the model takes ", input.channels, " x ", input.height, " x ", input.width));
    }
    for (int64_t image = 0; image < source_->images(); ++image) {
      if (source_->label(image) < input.classes) continue;
      return absl::InvalidArgumentError(absl::StrCat(source_->WhereLabel(image), " is ",
                                                     source_->label(image), "; the model has ", input.classes,
                                                     " classes (spec.model.classes sets another number)"));
    }
    source_->Release();
    return absl::OkStatus();
  }

  absl::StatusOr<Batch> Read(std::span<const Sample> samples) const override {
    const ImageFormat& format = source_->format();
    const int64_t plane = format.height * format.width, rows = static_cast<int64_t>(samples.size());
    const int64_t channels =
        format.channels == 1 && options_.channels > 0 ? options_.channels : format.channels;
    Batch batch{at::empty({rows, channels, format.height, format.width}), at::empty({rows}, at::kLong), rows};
    std::vector<uint8_t> pixels(format.channels * plane);
    float* out = batch.inputs.mutable_data_ptr<float>();
    for (int64_t row = 0; row < rows; ++row) {
      const Sample& sample = samples[row];
      TESSERA_RETURN_IF_ERROR(source_->Read(sample.index, pixels));
      const Distortion distortion = options_.augmentation ? DistortionOf(sample.draw, format) : Distortion{};
      for (int64_t c = 0; c < channels; ++c, out += plane) {
        const size_t from = static_cast<size_t>(std::min(c, format.channels - 1));
        Standardise(pixels.data() + from * plane, format, distortion, format.mean[from],
                    format.deviation[from], out);
      }
      batch.targets.mutable_data_ptr<int64_t>()[row] = source_->label(sample.index);
    }
    source_->Release();
    return batch;
  }

 private:
  const std::unique_ptr<ImageSource> source_;
  const ImageOptions options_;
};

}  // namespace

std::unique_ptr<Dataset> MakeImageDataset(std::unique_ptr<ImageSource> source, const ImageOptions& options) {
  return std::make_unique<ImageDataset>(std::move(source), options);
}

}  // namespace tessera::worker
