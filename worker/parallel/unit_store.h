// The model states one rank holds, group by group (unit_groups.h). The optimizer's moments and, from a
// backward pass to the update, gradients are one flat fp32 tensor per group; the parameters of a block are
// its working memory, whose views the model reads. Absent units allocate nothing, unless backward masking
// needs their weights.
//
// Where a group's parameters are:
//   resident   in the working memory of its block, which stays
//   sharded    its holders keep 1/k of the flat tensor each; gradients and moments likewise. The working
//              memory of all blocks is transient: allocated, filled, used, freed (weight_fetcher.h)
//   streamed   backward masking: the working memory of a block that is not wholly held is transient, and
//              what is held of it has a flat tensor beside it
//
// Lives on the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"
#include "worker/models/model.h"
#include "worker/parallel/unit_groups.h"

namespace tessera::worker {

class KeptOperations;

struct StoreOptions {
  bool backward_masking = false;  // every rank runs every block, and trains the units it holds
  bool streamed = false;          // backward masking: absent weights come and go; implied by sharded
  bool sharded = false;
  std::vector<std::string> moments{"exp_avg", "exp_avg_sq"};  // names in checkpoints
  at::Device device = at::kCPU;                               // of all tensors
};

// Elements that an optimizer treats alike.
struct StateSpan {
  at::Tensor parameters, gradients;  // flat, of one length
  std::vector<at::Tensor> moments;
  bool decay = true;
  int64_t begin = 0;  // of the state's gradients and moments
  // Not null: of the gradients there are the kept elements alone, and the optimizer's step is one of its
  // operations (worker/dropping/kept_operations.h).
  KeptOperations* kept = nullptr;
  bool freeze_unsent = false;  // then: leaves the others as they are; else their gradient is zero
};

struct GroupState {
  int group = 0;                   // in UnitStore::groups()
  std::vector<GroupPiece> pieces;  // in the working memory of the block
  int64_t begin = 0, end = 0;      // of the group's elements, what this rank keeps; all unless sharded
  at::Tensor parameters;           // [end - begin]; undefined: in the working memory only, piece by piece
  at::Tensor gradients;            // [end - begin]; undefined: there are none (SetGradients)
  std::vector<at::Tensor> moments;
  std::vector<StateSpan> spans;
};

struct WorkingBlock {
  int block = plan::kNoBlock;
  std::vector<int> groups;  // at hand here when it is whole: held ones first
  WorkingLayout layout;     // of those
  bool transient = false;
  at::Tensor memory;  // [elements], without a version counter shared with the weights
};

class UnitStore {
 public:
  // Zeros. `model` and `plan` outlive it.
  static absl::StatusOr<std::unique_ptr<UnitStore>> Create(const Model& model, const plan::MaskPlan& plan,
                                                           int rank, const StoreOptions& options = {});
  // Without a block yet: to be given every one in its order, those outside the blocks first, by AddBlock
  // (zeros) or AdoptBlock (memory and all, from a store whose plan has the same holders of its units).
  static std::unique_ptr<UnitStore> CreateEmpty(const Model& model, const plan::MaskPlan& plan, int rank,
                                                const StoreOptions& options);
  void AddBlock(int block);
  void AdoptBlock(int block, UnitStore& from);
  void AdoptBuffers(const UnitStore& from);
  void DropBlock(int block);  // frees what it has; not to be asked for again

  // Initial values of what is held, a pure function of (seed, parameter): the same bits on all holders.
  void Initialize(uint64_t seed);
  // Takes what is held here of a parameter from its whole value.
  void SetParameter(int parameter, const at::Tensor& value);
  // kind 0: the parameters, 1 and up: the moments. value: of the group's flat tensor at `offset`.
  void SetFlat(GroupState& state, int kind, int64_t offset, const at::Tensor& value);

  const Model& model() const { return model_; }
  const plan::MaskPlan& plan() const { return plan_; }
  const StoreOptions& options() const { return options_; }
  at::TensorOptions floats() const { return at::TensorOptions(options_.device).dtype(at::kFloat); }
  int rank() const { return rank_; }

  // By parameter, as the model reads them; undefined where the block is absent. Then the buffers, whole on
  // every rank.
  const Weights& weights() const { return weights_; }
  // By parameter: what takes gradients, the held rows; undefined where there are none.
  const Weights& leaves() const { return leaves_; }
  // For one forward pass: the block's weights of which some rows alone are trained, tied to their leaf.
  void TieToLeaves(int block, Weights& weights) const;

  const std::vector<UnitGroup>& groups() const { return groups_; }  // of the whole plan
  std::vector<GroupState>& held() { return held_; }                 // by group
  const std::vector<GroupState>& held() const { return held_; }
  const GroupState* Find(int group) const;       // null: not held
  const WorkingBlock* Working(int block) const;  // null: absent
  // What this rank keeps of a held group's parameters: a view or a copy, [end - begin] or the whole shard.
  at::Tensor FlatParameters(const GroupState& state) const;

  // Elements [low, high) of the group, all kept here and of one slot: a view.
  at::Tensor ParameterRange(const GroupState& state, int64_t low, int64_t high) const;
  // A held group's flat gradients, as large as its moments; undefined: frees what is there.
  void SetGradients(GroupState& state, at::Tensor gradients);
  // The elements of that tensor: of a shard, with what the last holder's lacks.
  int64_t FlatElements(const GroupState& state) const;

  // Of transient working memory: undefined values, or none.
  void Allocate(int block);
  void Free(int block);

 private:
  UnitStore(const Model& model, const plan::MaskPlan& plan, int rank, StoreOptions options);
  void MakeBlock(int block, std::vector<int> groups);
  std::vector<int> GroupsOf(int block) const;
  void MakeState(GroupState state, const WorkingBlock& working);
  void MakeViews(const WorkingBlock& working);

  const Model& model_;
  const plan::MaskPlan& plan_;
  const int rank_;
  const StoreOptions options_;
  const std::vector<UnitGroup> groups_;
  Weights weights_, leaves_;
  std::vector<GroupState> held_;
  std::vector<WorkingBlock> blocks_;  // by block + 1; no groups: absent
};

}  // namespace tessera::worker
