// Reads whole parameters from a checkpoint, put together from the pieces they were written in.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"

namespace tessera::worker {

class WholeParameters {
 public:
  // `manifest` is the checkpoint's and `shape` that of its model. FailedPrecondition: it is of another one.
  static absl::StatusOr<std::unique_ptr<WholeParameters>> Open(const std::string& checkpoint,
                                                               Manifest manifest,
                                                               const plan::ModelShape& shape);

  // Of a parameter or, after those, a buffer: fp32, its dims. Each piece is multiplied by `scale` of its
  // unit, if set. A file is checked against its checksum when first used and stays mapped. DataLoss names the
  // file that is damaged or missing.
  absl::StatusOr<at::Tensor> Read(int parameter,
                                  const std::function<double(const ManifestUnit&)>& scale = nullptr);

  const Manifest& manifest() const { return manifest_; }

 private:
  WholeParameters(std::string checkpoint, Manifest manifest, const plan::ModelShape& shape)
      : checkpoint_(std::move(checkpoint)), manifest_(std::move(manifest)), shape_(shape) {}
  absl::StatusOr<const SafetensorsFile*> Open(const ManifestFile& file);

  const std::string checkpoint_;
  const Manifest manifest_;
  const plan::ModelShape shape_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> open_;
};

// DataLoss names a file that is missing or not as the manifest says.
absl::Status CheckFile(const std::string& checkpoint, const ManifestFile& file);

}  // namespace tessera::worker
