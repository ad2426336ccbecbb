// Labelled images as bytes, before augmentation and standardisation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace tessera::worker {

struct ImageFormat {
  int64_t channels = 3, height = 0, width = 0;
  // Of pixels between 0 and 1, over the format's training images; by channel.
  std::array<float, 3> mean{}, deviation{};
  bool mirrored = true;  // an image seen in a mirror is one of the same class
};

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual const ImageFormat& format() const = 0;
  virtual int64_t images() const = 0;
  virtual int64_t label(int64_t image) const = 0;
  // "FILE: label at offset N", or what stands for it.
  virtual std::string WhereLabel(int64_t image) const = 0;
  // Fills channels * height * width bytes, channel by channel. DataLoss names the file.
  virtual absl::Status Read(int64_t image, std::span<uint8_t> pixels) const = 0;
  // After many readings: what they left in resident memory is given back.
  virtual void Release() const {}
};

// CIFAR-10 and CIFAR-100 binary records: one label byte, or a coarse and a fine one, of which the fine
// counts, then 32 x 32 pixels in red, green and blue planes. DataLoss names the file and the offset where a
// record is cut short.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenCifarRecords(const std::vector<std::string>& files);

// An IDX file of grey images (MNIST family) and, beside it, its labels: "images-idx3" in the name stands
// there as "labels-idx1". DataLoss names the file and the offset.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenIdxFile(const std::string& images);

// A folder of folders, one for each class in the order of their names, of JPEG, PNG and BMP files. Of each
// image the middle square is taken and scaled to size x size. Images are decoded when they are read.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageFolder(const std::string& folder, int64_t size);

// pattern: a file, a glob, or a folder as it is downloaded: data_batch_*.bin and test_batch.bin, train.bin
// and test.bin, train-images-idx3-ubyte and t10k-images-idx3-ubyte; else a folder of images, in which `train`
// and `validation` (or `val`) may stand above the classes. size: of the model's images, to which those are
// scaled.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenImages(const std::string& pattern, DataPart part,
                                                        int64_t size);

struct ImageOptions {
  // Readings with a draw are shifted by up to an eighth of their size, black coming in, and mirrored half of
  // the time where that keeps the class.
  bool augmentation = true;
  int64_t channels = 0;  // grey images are repeated to as many; 0: as they are
};

// Standardised fp32 images [B, C, H, W] and their labels [B].
std::unique_ptr<Dataset> MakeImageDataset(std::unique_ptr<ImageSource> source, const ImageOptions& options);

}  // namespace tessera::worker
