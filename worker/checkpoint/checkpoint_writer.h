// Checkpoints written while training goes on.
//
// Nothing is copied: between Begin and the next update of a unit its weights and moments do not change, a
// whole forward and backward pass long, and that is when the writer hands them to the kernel. Only a unit
// that is not through by then makes its update wait (BeforeUpdate). What follows, flushing to the disk, needs
// the kernel's pages alone. So the memory cost is zero tensor bytes, and the time cost is what a pass over
// the owned states takes beyond one forward and backward pass.
//
// Everything goes to step-N-<draw>.tmp, is flushed, and is renamed last: a checkpoint is complete or not
// there.
//
// Lives on the trainer's thread and has one of its own while it writes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/checkpoint/checkpoint_folder.h"
#include "worker/checkpoint/held_state.h"
#include "worker/checkpoint/manifest.h"
#include "worker/comm/communicator.h"

namespace tessera::worker {

class CheckpointWriter {
 public:
  // `directory` is one folder seen by all ranks. `all` outlives the writer.
  CheckpointWriter(std::string directory, const Retention& retention, Communicator* all);
  // Abandons what is under way, as soon as the piece in hand is written.
  ~CheckpointWriter();

  // All ranks together; none is under way. The store outlives it, and its units change only after
  // BeforeUpdate. When any rank can't, every rank gets an error that says which and why.
  // residual: of gradient dropping (ResidualPieces), or undefined; changes only after BeforeBackward.
  absl::Status Begin(const CheckpointInfo& info, const UnitStore& store, const at::Tensor& residual = {});

  bool active() const { return active_; }
  // This rank's part is on the disk, or failed: Finish will not wait for it.
  bool written() const;
  // Returns when `unit` may change.
  void BeforeUpdate(int unit);
  // Returns when the residual may change: it is written first.
  void BeforeBackward() { BeforeUpdate(kResidual); }
  // All ranks together, when active: waits for all parts and puts the checkpoint in its place. Returns its
  // path and removes what retention does not keep. After an error earlier checkpoints are untouched
  // and the attempt is removed. Unavailable means a lost peer, nothing else.
  absl::StatusOr<std::string> Finish();

 private:
  static constexpr int kResidual = -1;  // before all units

  void WriteAll();  // on the writer's thread
  absl::Status WriteParts();
  absl::Status WritePart(const std::string& file, absl::Span<const HeldPiece> pieces);
  int FirstUnit() const;
  absl::Status GatherFiles(std::vector<ManifestFile>* files);
  absl::Status Publish();
  absl::StatusOr<std::string> GiveUp(const absl::Status& status);

  const std::string directory_;
  const Retention retention_;
  Communicator* const all_;

  // Fixed while the thread runs.
  std::string attempt_;
  Manifest manifest_;                // without the files of other ranks, until Finish
  plan::ModelShape shape_;           // a copy: the store's model may go first when a test is done
  std::vector<HeldPiece> owned_;     // by unit
  std::vector<HeldPiece> residual_;  // empty: none
  struct Part;                       // a file, open until it is flushed
  std::vector<Part> parts_;
  bool active_ = false;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  int passed_ ABSL_GUARDED_BY(mutex_) = 0;  // units below it may change
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::worker
