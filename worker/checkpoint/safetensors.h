// Reading and writing of safetensors files (8-byte header length, JSON header,
// raw little-endian data). Tensors are fp32, bf16, fp16, int64, int32 or uint8.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/crc32c.h"

namespace tessera::worker {

// One file written front to back: the names, types and shapes first, then each
// tensor's data in that order. Only one tensor need be in memory at a time.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    at::ScalarType dtype;
    std::vector<int64_t> dims;
  };
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, std::vector<Entry> entries,
      const std::map<std::string, std::string>& metadata = {});
  virtual ~SafetensorsWriter() = default;
  virtual absl::Status Append(const at::Tensor& tensor) = 0;  // the next entry's data
  virtual absl::Status Finish() = 0;                          // checks completeness, fsyncs, closes
  virtual FileDigest digest() const = 0;                      // of what was written so far
};

// Tensors in `tensors` order into `path`, through SafetensorsWriter.
absl::Status WriteSafetensors(const std::string& path,
                              const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

// Memory-mapped, read-only. Open checks the header against the file's size:
// DataLoss names the file and what does not fit.
class SafetensorsFile {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  virtual ~SafetensorsFile() = default;
  virtual std::vector<std::string> names() const = 0;
  virtual const std::map<std::string, std::string>& metadata() const = 0;
  virtual bool Has(const std::string& name) const = 0;
  virtual std::vector<int64_t> Dims(const std::string& name) const = 0;  // of a tensor it has
  // A copy in fp32 (or the stored integer type). NotFound lists a few of the names there are.
  virtual absl::StatusOr<at::Tensor> Read(const std::string& name) const = 0;
  // In the stored type and without a copy: valid as long as the file is.
  virtual absl::StatusOr<at::Tensor> Borrow(const std::string& name) const = 0;
};

}  // namespace tessera::worker
