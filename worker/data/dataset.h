// What a trainer reads: samples by index, of text or images, on disk or made up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/models/model.h"

namespace tessera::worker {

// One reading of a sample. `draw` settles what is random about it (crop, flip, masked tokens), the same
// on any rank; 0 is the undisturbed reading of an evaluation.
struct Sample {
  int64_t index = 0;
  uint64_t draw = 0;
};

// Of a folder that holds both.
enum class DataPart { kTraining, kValidation };

// Maps files read-only. Thread-safe once it is opened.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t samples() const = 0;
  // InvalidArgument names the file and what in it the model can't take: an image of another size, a label
  // or a token out of range. To be asked before anything is read.
  virtual absl::Status Check(const ModelInput& input) const = 0;
  // One row a sample. DataLoss names the file that is damaged, and the offset.
  virtual absl::StatusOr<Batch> Read(std::span<const Sample> samples) const = 0;
};

}  // namespace tessera::worker
