// Reading checkpoints, and writing one at once. Written in the background: checkpoint_writer.h.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint_folder.h"
#include "worker/checkpoint/held_state.h"
#include "worker/checkpoint/manifest.h"
#include "worker/comm/communicator.h"

namespace tessera::worker {

// CheckpointWriter's Begin and Finish.
absl::StatusOr<std::string> WriteCheckpoint(const std::string& directory, const CheckpointInfo& info,
                                            const UnitStore& store, Communicator& all,
                                            const Retention& retention);

// Fills this rank's pieces, whatever world size, mask plan, granularity or sharding wrote them. Each file
// that has some of them is checked against its checksum first and read piece by piece from a memory map. On
// an error some pieces may be filled. FailedPrecondition: another model, or the file system. DataLoss names
// the file that is damaged or missing. Each rank may call it alone.
absl::StatusOr<CheckpointInfo> LoadCheckpoint(const std::string& checkpoint, UnitStore* store);

struct Resumed {
  CheckpointInfo info;
  std::string checkpoint;
  std::vector<std::string> passed_over;  // newer ones that are damaged, and how, a sentence each
};

// All ranks call it together and resume from the same checkpoint: the given one, or with `allow_previous` the
// newest before it that every rank can read its pieces from. Damaged ones are renamed to <name>.damaged once
// a good one is loaded. Otherwise the error names the file, the rank, and what to do.
absl::StatusOr<Resumed> ResumeFrom(const std::string& checkpoint, bool allow_previous, UnitStore* store,
                                   Communicator& all);

}  // namespace tessera::worker
