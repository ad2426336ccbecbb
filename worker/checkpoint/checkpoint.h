// Checkpoints by unit, written by the units' owners, complete or not there at all:
// everything goes to step-N.tmp, is flushed to the disk, and is renamed last.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/manifest.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

// All ranks call it together; `directory` is one folder seen by all of them. Returns the new
// checkpoint's path and removes older ones beyond the newest `keep`. When any rank can't write, every
// rank gets an error that says which and why, earlier checkpoints are untouched and the attempt is
// removed. Unavailable means a lost peer, nothing else.
absl::StatusOr<std::string> WriteCheckpoint(const std::string& directory, const CheckpointInfo& info,
                                            const UnitStore& store, Communicator& all, int keep);

// Fills this rank's units; world size and mask plan need not be those that wrote it. FailedPrecondition:
// another model. DataLoss names the file that is damaged. Each rank may call it alone.
absl::StatusOr<CheckpointInfo> LoadCheckpoint(const std::string& checkpoint, UnitStore* store);

}  // namespace tessera::worker
