#include "worker/parallel/runner.h"

#include "base/check.h"

namespace tessera::worker {
namespace {

int UnitOfBlock(const plan::MaskPlan& plan, int block) {
  const int unit = block + 1;
  TESSERA_CHECK(unit < static_cast<int>(plan.units().size()) && plan.units()[unit].block == block);
  return unit;
}

}  // namespace

double TrainingScale(const plan::MaskPlan& plan, int unit, ResidualScale residual) {
  if (residual != ResidualScale::kTrainInverse || plan.units()[unit].always_on) return 1;
  return 1 / plan.HolderShare(unit);
}

double EvaluationScale(const plan::MaskPlan& plan, int unit, ResidualScale residual) {
  if (residual != ResidualScale::kEvaluation || plan.units()[unit].always_on) return 1;
  return plan.HolderShare(unit);
}

at::Tensor MaskedRunner::Run(int block, const at::Tensor& x, const BlockBody& body) {
  const int unit = UnitOfBlock(store_.plan(), block);
  if (!store_.plan().Holds(store_.rank(), unit)) return body.Shortcut(x);
  return body(x, TrainingScale(store_.plan(), unit, residual_));
}

StreamedRunner::StreamedRunner(const UnitStore& store, World* world, ResidualScale residual, Pass pass)
    : BlockRunner(pass), store_(store), world_(world), residual_(residual), weights_(store.weights()) {}

at::Tensor StreamedRunner::Run(int block, const at::Tensor& x, const BlockBody& body) {
  const plan::MaskPlan& plan = store_.plan();
  const int unit = UnitOfBlock(plan, block);
  if (!status_.ok()) return x;
  const double scale = EvaluationScale(plan, unit, residual_);
  const auto holders = plan.Holders(unit);
  if (static_cast<int>(holders.size()) == world_->all().size()) return body(x, scale);

  const UnitState* held = store_.Find(unit);
  const UnitLayout layout = held != nullptr ? held->layout : LayOutUnit(store_.model().shape(), plan, unit);
  // Holders other than the owner receive the bits they have already.
  const at::Tensor flat = held != nullptr ? held->parameters : at::empty({layout.elements});
  status_ = world_->all().Broadcast(flat, holders[0]);
  if (!status_.ok()) return x;
  if (held != nullptr) return body(x, scale);
  for (const UnitSlot& slot : layout.slots) {
    weights_[slot.parameter] = SlotView(store_.model().shape(), slot, flat);
  }
  at::Tensor y = body(x, scale);
  for (const UnitSlot& slot : layout.slots) weights_[slot.parameter] = at::Tensor();
  return y;
}

}  // namespace tessera::worker
