#include "worker/parallel/unit_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera::worker {

UnitLayout LayOutUnit(const plan::ModelShape& shape, const plan::MaskPlan& plan, int unit) {
  UnitLayout layout;
  for (const bool decay : {true, false}) {
    for (const plan::Slice& slice : plan.slices()) {
      if (slice.unit != unit || shape.parameters[slice.parameter].decay != decay) continue;
      layout.slots.push_back({slice.parameter, layout.elements, slice.elements});
      layout.elements += slice.elements;
    }
    if (decay) layout.decayed = layout.elements;
  }
  return layout;
}

at::Tensor SlotView(const plan::ModelShape& shape, const UnitSlot& slot, const at::Tensor& flat) {
  return flat.narrow(0, slot.offset, slot.elements).view(shape.parameters[slot.parameter].dims);
}

absl::StatusOr<std::unique_ptr<UnitStore>> UnitStore::Create(const Model& model, const plan::MaskPlan& plan,
                                                             int rank) {
  for (const plan::Unit& unit : plan.units()) {
    if (unit.axis != plan::Axis::kNone) {
      return absl::UnimplementedError(absl::StrCat("spec.subnetwork.granularity: unit '", unit.name,
                                                   "' is a part of a block; only whole "
                                                   "blocks (granularity: block) can be held so far"));
    }
  }
  auto store = std::unique_ptr<UnitStore>(new UnitStore(model, plan, rank));
  const plan::ModelShape& shape = model.shape();
  store->weights_.resize(shape.parameters.size());
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    if (!plan.Holds(rank, u)) continue;
    UnitState state;
    state.unit = u;
    state.layout = LayOutUnit(shape, plan, u);
    state.parameters = at::zeros({state.layout.elements});
    state.gradients = at::zeros({state.layout.elements + 1});
    state.exp_avg = at::zeros({state.layout.elements});
    state.exp_avg_sq = at::zeros({state.layout.elements});
    for (const UnitSlot& slot : state.layout.slots) {
      store->weights_[slot.parameter] =
          SlotView(shape, slot, state.parameters).detach().set_requires_grad(true);
    }
    store->units_.push_back(std::move(state));
  }
  for (const plan::Buffer& buffer : shape.buffers) {
    store->weights_.push_back(at::full(buffer.dims, buffer.initial, at::kFloat));
  }
  return store;
}

void UnitStore::Initialize(uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (UnitState& state : units_) {
    for (const UnitSlot& slot : state.layout.slots) {
      at::Tensor view = SlotView(model_.shape(), slot, state.parameters);
      model_.Initialize(slot.parameter, seed, view);
    }
  }
}

const UnitState* UnitStore::Find(int unit) const {
  const auto it = std::lower_bound(units_.begin(), units_.end(), unit,
                                   [](const UnitState& state, int wanted) { return state.unit < wanted; });
  return it != units_.end() && it->unit == unit ? &*it : nullptr;
}

}  // namespace tessera::worker
