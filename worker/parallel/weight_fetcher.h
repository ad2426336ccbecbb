// Brings weights to ranks that do not keep them: shards are gathered among their holders, absent
// units are sent by their owner. All ranks call it in the same order of blocks.
//
// Lives on the trainer's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

class WeightFetcher {
 public:
  // Connects the groups that carry weights. `store` and `world` outlive it.
  static absl::StatusOr<std::unique_ptr<WeightFetcher>> Create(UnitStore* store, World* world);

  // Whether this rank takes part in bringing the block together.
  bool Moves(int block) const;
  // Starts what Fetch waits for. Nothing for a block that does not move or is under way.
  void Prefetch(int block);
  // Makes the block's working memory whole. Unavailable: a peer is lost.
  absl::Status Fetch(int block);
  void Release(int block);  // frees transient memory; nothing if there is none
  void ReleaseAll();        // also what was started and is not waited for

  // A group's parameters, [elements], on its holders, or with to_all on every rank; undefined elsewhere.
  // Everyone who gets them, and every holder, calls it.
  absl::StatusOr<at::Tensor> Gather(int group, bool to_all);

  // Backward masking with stored weights: the owners send what they updated to those who lack it.
  absl::Status Publish();

 private:
  struct Part {
    int group = 0;
    at::Tensor flat;  // [elements], or a multiple of the shard
    std::unique_ptr<Work> work;
  };
  struct Block {
    bool moves = false;
    bool whole = false;  // working memory is allocated and filled
    bool started = false;
    std::vector<Part> parts;
  };

  WeightFetcher(UnitStore* store, World* world) : store_(store), world_(world) {}
  bool Sends(const UnitGroup& group) const;  // to those who lack it
  at::Tensor Destination(int group) const;
  void CopyIn(const WorkingBlock& working, int group, const at::Tensor& flat);

  UnitStore* store_;
  World* world_;
  Communicator* everyone_ = nullptr;
  std::vector<Communicator*> holders_;  // by group; null: not sharded, or not held
  std::vector<Block> blocks_;           // by block + 1
};

}  // namespace tessera::worker
