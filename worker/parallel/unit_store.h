// The model states one rank holds, unit by unit. A unit's parameters, gradients
// and Adam moments are one flat fp32 tensor each; the model sees views. Absent
// units allocate nothing.
//
// Order inside a unit: parameters under weight decay in the model's order, then the
// others. The gradient has one element more, the number of tokens this rank contributed,
// so that the divisor of a reduction travels in the same message.
//
// Lives on the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"
#include "worker/models/model.h"

namespace tessera::worker {

// Where a parameter stands in its unit.
struct UnitSlot {
  int parameter = 0;  // index into ModelShape::parameters
  int64_t offset = 0;
  int64_t elements = 0;
};

struct UnitLayout {
  std::vector<UnitSlot> slots;  // in flat order
  int64_t elements = 0;
  int64_t decayed = 0;  // the first `decayed` elements are under weight decay
};

// Pure: the same on holders and non-holders, which fill it when a unit is streamed to them.
UnitLayout LayOutUnit(const plan::ModelShape& shape, const plan::MaskPlan& plan, int unit);

struct UnitState {
  int unit = 0;
  UnitLayout layout;
  at::Tensor parameters;  // [elements]
  at::Tensor gradients;   // [elements + 1]
  at::Tensor exp_avg;     // [elements]
  at::Tensor exp_avg_sq;  // [elements]
};

class UnitStore {
 public:
  // Zeros. Unimplemented for plans whose units are not blocks. `model` and `plan` outlive it.
  static absl::StatusOr<std::unique_ptr<UnitStore>> Create(const Model& model, const plan::MaskPlan& plan,
                                                           int rank);

  // Initial values, a pure function of (seed, parameter): the same bits on all holders.
  void Initialize(uint64_t seed);

  const Model& model() const { return model_; }
  const plan::MaskPlan& plan() const { return plan_; }
  int rank() const { return rank_; }
  // By parameter: views that take gradients; undefined where not held. Then the buffers, whole on every rank.
  const Weights& weights() const { return weights_; }
  std::vector<UnitState>& units() { return units_; }  // held ones, ascending
  const std::vector<UnitState>& units() const { return units_; }
  const UnitState* Find(int unit) const;  // null: not held

 private:
  UnitStore(const Model& model, const plan::MaskPlan& plan, int rank)
      : model_(model), plan_(plan), rank_(rank) {}

  const Model& model_;
  const plan::MaskPlan& plan_;
  int rank_;
  Weights weights_;
  std::vector<UnitState> units_;
};

// A parameter's part of a flat unit tensor, in the parameter's shape.
at::Tensor SlotView(const plan::ModelShape& shape, const UnitSlot& slot, const at::Tensor& flat);

}  // namespace tessera::worker
