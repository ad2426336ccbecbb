// What comes and goes while a worker's blocks run, where weights are sharded or streamed: working memory that
// is filled before a block runs and freed after it, and whole gradients until their holders have reduced
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/cost.h"
#include "scheduler/plan/unit_sets.h"

namespace tessera::plan {

// Bytes, of one worker. All are 0 where everything is resident. A block's memory is filled while the one
// before it runs; its gradient is whole beside that of the block that runs, with as much again that comes
// in from its holders and is added up into a shard.
class MovingBlocks {
 public:
  // `sets` of a plan for `workers`.
  MovingBlocks(const ModelShape& shape, const std::vector<UnitSet>& sets, int workers, int worker,
               const StepShape& step);

  int64_t base() const { return base_.working; }  // outside the blocks, during the whole pass
  int64_t Forward(int block) const;
  int64_t Head() const;               // the loss and the start of backward
  int64_t Backward(int block) const;  // while it runs: the ones around it, too
  int64_t Reduce() const;             // after the last block's backward
  int64_t Evaluate(int block) const;  // put together on every worker, and freed after it
  int64_t Assemble(int block) const;  // the same before it runs, with the copies it is made of
  int64_t Largest() const;            // of the above that training has

 private:
  struct Moving {
    int64_t working = 0;   // while it is at hand
    int64_t copies = 0;    // that are put together into it, until it is whole
    int64_t gradient = 0;  // whole
    int64_t shards = 0;    // of gradients, received
    int64_t whole = 0;     // of all holders, as an evaluation puts it together; 0: it is here
    int64_t part = 0;      // the largest set of that, if there are several
    bool runs = false;
    bool moves = false;
  };
  int64_t Reducing(const Moving& block) const { return 2 * block.gradient + block.shards; }
  const Moving* Neighbour(int block, int direction, bool moves) const;

  Moving base_;
  std::vector<Moving> blocks_;
};

}  // namespace tessera::plan
