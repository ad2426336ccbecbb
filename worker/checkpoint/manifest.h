// What a checkpoint consists of: manifest.json beside the files of the units. A
// folder without a manifest is no checkpoint.
//
//   <directory>/step-00000120/manifest.json
//   <directory>/step-00000120/units/<unit>.safetensors   weights by Hugging Face name,
//                                                        exp_avg.<name>, exp_avg_sq.<name>
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"

namespace tessera::worker {

struct CheckpointInfo {
  int64_t step = 0;    // finished
  int64_t tokens = 0;  // of all ranks
  uint64_t seed = 0;
  std::string job;  // opaque, from the trainer's options
};

struct ManifestUnit {
  std::string name;
  std::string file;  // relative to the checkpoint
  int64_t bytes = 0;
  uint32_t crc32c = 0;
  double holder_share = 1;  // of the workers; C of the evaluation scale
  bool always_on = false;
  std::vector<int> holders;
};

struct Manifest {
  CheckpointInfo info;
  std::string model_config;  // config.json in the Hugging Face layout
  uint64_t shape_fingerprint = 0;
  uint64_t mask_fingerprint = 0;
  int workers = 0;
  std::vector<ManifestUnit> units;
};

std::string StepDirectoryName(int64_t step);        // "step-00000120"
std::string UnitFileName(const std::string& unit);  // "units/<unit>.safetensors"

std::string ToJson(const Manifest& manifest);
// NotFound: there is no manifest. DataLoss: it can't be read or is of an unknown version.
absl::StatusOr<Manifest> ReadManifest(const std::string& checkpoint);

// Complete checkpoints in a directory, oldest first, as paths.
std::vector<std::string> ListCheckpoints(const std::string& directory);

}  // namespace tessera::worker
