// What a checkpoint consists of: manifest.json beside the files it lists. A folder
// without a manifest is no checkpoint.
//
//   <directory>/step-00000120/manifest.json
//   <directory>/step-00000120/units/<unit>.<rank>.safetensors   the pieces of a unit that one rank owned:
//                                      weights by Hugging Face name, moments as exp_avg.<name> and so on
//   <directory>/step-00000120/residual.<rank>.safetensors   of gradient dropping, where it keeps one
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"
#include "worker/checkpoint/crc32c.h"
#include "worker/checkpoint/piece.h"

namespace tessera::worker {

// Where a training stands. What is random in it is a function of the seed and these counts, so they are
// the state of the generators as well.
struct CheckpointInfo {
  int64_t step = 0;     // finished
  int64_t tokens = 0;   // of all ranks
  int64_t samples = 0;  // of all ranks: the sampler's position
  uint64_t seed = 0;
  int64_t plan_generation = 0;
  std::string job;  // opaque, from the trainer's options; its schedule is in it
};

struct ManifestUnit {
  std::string name;
  int block = plan::kNoBlock;
  double holder_share = 1;  // of the workers; C of the evaluation scale
  bool always_on = false;
  std::vector<int> holders;
};

struct ManifestFile {
  std::string file;  // relative to the checkpoint
  int unit = 0;      // index into Manifest::units
  FileDigest digest;
  std::vector<Piece> pieces;
};

struct Manifest {
  CheckpointInfo info;
  std::string model_config;  // config.json in the Hugging Face layout
  uint64_t shape_fingerprint = 0;
  uint64_t mask_fingerprint = 0;
  int workers = 0;
  std::vector<ManifestUnit> units;
  std::vector<ManifestFile> files;
  std::vector<ManifestFile> residuals;  // their `unit` is the rank that wrote the file
};

std::string StepDirectoryName(int64_t step);  // "step-00000120"

// The file carries a checksum of its content.
std::string ToJson(const Manifest& manifest);
// NotFound: there is no manifest. PermissionDenied, FailedPrecondition: it can't be opened or read. DataLoss:
// it is damaged or of an unknown version. Each names the file.
absl::StatusOr<Manifest> ReadManifest(const std::string& checkpoint);

// The files' part of a manifest, as ranks tell it each other.
std::string ToJson(const std::vector<ManifestFile>& files);
absl::StatusOr<std::vector<ManifestFile>> ParseManifestFiles(const std::string& json);

}  // namespace tessera::worker
