#include "scheduler/plan/moving_blocks.h"

#include <algorithm>

namespace tessera::plan {

MovingBlocks::MovingBlocks(const ModelShape& shape, const std::vector<UnitSet>& sets, int workers, int worker,
                           const StepShape& step)
    : blocks_(shape.blocks.size()) {
  const int64_t e = step.bytes_per_element;
  const bool streamed = step.backward_masking && (step.streamed || step.sharded);
  const auto of = [&](const UnitSet& set) -> Moving& {
    return set.block == kNoBlock ? base_ : blocks_[static_cast<size_t>(set.block)];
  };
  const auto entry = [](const UnitSet& set) { return static_cast<size_t>(int64_t{set.block} + 1); };
  std::vector<int> here(blocks_.size() + 1, 0), all(blocks_.size() + 1, 0);  // sets, by block + 1
  std::vector<bool> held(blocks_.size() + 1, true);
  for (const UnitSet& set : sets) {
    const size_t at = entry(set);
    const bool own = set.Holds(worker);
    ++all[at];
    if (own || step.backward_masking) ++here[at];
    if (!own) held[at] = false;
    if (own || step.backward_masking) of(set).runs = true;
  }
  for (const UnitSet& set : sets) {
    const size_t at = entry(set);
    const bool own = set.Holds(worker);
    const auto k = static_cast<int64_t>(set.holders.size());
    Moving& block = of(set);
    const int64_t gathered = e * (own && step.sharded ? set.Kept(true) * k : set.elements);
    const bool resident = !step.sharded && (!streamed || held[at]);
    if (own || step.backward_masking) {
      const bool direct = here[at] == 1 && gathered == e * set.elements;
      const bool kept = own && !step.sharded;  // its flat tensor is there anyway
      if (!resident) block.working += e * set.elements;
      if (!resident && !direct && !kept) block.copies += gathered;
      block.moves = block.moves || !resident || (streamed && k < workers);
    }
    if (own && step.sharded) {
      block.gradient += gathered;
      if (k > 1) block.shards += e * set.Kept(true);
    }
    const bool everywhere = k == workers || (step.backward_masking && !streamed);
    if (step.sharded || !everywhere) block.part = std::max(block.part, gathered);
    block.whole += e * set.elements;
  }
  for (size_t at = 0; at < all.size(); ++at) {
    Moving& block = at == 0 ? base_ : blocks_[at - 1];
    const bool own = all[at] == 1 && held[at] && !step.sharded;  // its one flat tensor serves
    if (block.part == 0 || own) block.whole = 0;
    if (all[at] == 1) block.part = 0;
  }
}

// The nearest block that runs; with `moves` the nearest one that moves.
const MovingBlocks::Moving* MovingBlocks::Neighbour(int block, int direction, bool moves) const {
  for (int b = block + direction; b >= 0 && b < static_cast<int>(blocks_.size()); b += direction) {
    const Moving& other = blocks_[static_cast<size_t>(b)];
    if (moves ? other.moves : other.runs) return &other;
  }
  return nullptr;
}

int64_t MovingBlocks::Forward(int block) const {
  const Moving& own = blocks_[static_cast<size_t>(block)];
  const Moving* next = own.moves ? Neighbour(block, 1, true) : nullptr;
  const int64_t ahead = next == nullptr ? 0 : next->working + next->copies;
  return base_.working + own.working + std::max(own.copies, ahead);
}

int64_t MovingBlocks::Head() const { return base_.working + base_.gradient; }

int64_t MovingBlocks::Backward(int block) const {
  const Moving& own = blocks_[static_cast<size_t>(block)];
  const Moving* next = own.moves ? Neighbour(block, -1, true) : nullptr;
  const Moving* before = Neighbour(block, 1, false);
  const int64_t ahead = next == nullptr ? 0 : next->working + next->copies;
  return Head() + own.working + ahead + own.gradient + (before == nullptr ? 0 : Reducing(*before));
}

int64_t MovingBlocks::Reduce() const {
  const Moving* first = Neighbour(-1, 1, false);
  return base_.working + Reducing(base_) + (first == nullptr ? 0 : Reducing(*first));
}

int64_t MovingBlocks::Evaluate(int block) const {
  return base_.whole + blocks_[static_cast<size_t>(block)].whole;
}

int64_t MovingBlocks::Assemble(int block) const {
  return Evaluate(block) + blocks_[static_cast<size_t>(block)].part;
}

int64_t MovingBlocks::Largest() const {
  int64_t largest = std::max(Head(), Reduce());
  for (int b = 0; b < static_cast<int>(blocks_.size()); ++b) {
    if (blocks_[static_cast<size_t>(b)].runs) largest = std::max({largest, Forward(b), Backward(b)});
  }
  return largest;
}

}  // namespace tessera::plan
