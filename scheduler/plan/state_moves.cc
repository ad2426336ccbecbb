// What moves where when masks change, and what that takes.
#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "scheduler/plan/mask_schedule.h"
#include "scheduler/plan/unit_sets.h"

namespace tessera::plan {
namespace {

// Elements of a slice that a worker keeps.
struct Kept {
  int worker = 0;
  int64_t first = 0, end = 0;
};

// By slice, by worker. Sharded, a set's flat tensor is cut into equal parts among its holders; it has the
// slices under weight decay first, each kind in their order.
std::vector<std::vector<Kept>> KeptOf(const ModelShape& shape, const MaskPlan& plan, bool sharded) {
  std::vector<std::vector<Kept>> kept(plan.slices().size());
  if (!sharded) {
    for (size_t s = 0; s < kept.size(); ++s) {
      const Slice& slice = plan.slices()[s];
      for (int holder : plan.Holders(slice.unit)) kept[s].push_back({holder, 0, slice.elements});
    }
    return kept;
  }
  std::map<std::pair<int, std::vector<int>>, int64_t> size, offset;  // of sets
  const auto set_of = [&](const Slice& slice) {
    const auto holders = plan.Holders(slice.unit);
    return std::pair(plan.units()[slice.unit].block, std::vector<int>(holders.begin(), holders.end()));
  };
  for (const Slice& slice : plan.slices()) size[set_of(slice)] += slice.elements;
  for (const bool decay : {true, false}) {
    for (size_t s = 0; s < kept.size(); ++s) {
      const Slice& slice = plan.slices()[s];
      if (shape.parameters[slice.parameter].decay != decay) continue;
      const auto set = set_of(slice);
      const int64_t k = static_cast<int64_t>(set.second.size()), shard = (size[set] + k - 1) / k;
      const int64_t begin = offset[set];
      offset[set] += slice.elements;
      for (int64_t i = 0; i < k; ++i) {
        const int64_t first = std::clamp<int64_t>(i * shard - begin, 0, slice.elements);
        const int64_t end = std::clamp<int64_t>((i + 1) * shard - begin, 0, slice.elements);
        if (first < end) kept[s].push_back({set.second[static_cast<size_t>(i)], first, end});
      }
    }
  }
  return kept;
}

// Bytes of a worker's residual, and of what of it goes and comes when masks change.
struct ResidualBytes {
  int64_t old = 0, fresh = 0;
  int64_t out = 0, in = 0;  // of the block that has most
  int64_t sent = 0;
};

std::vector<ResidualBytes> ResidualsOf(const MaskPlan& before, const MaskPlan& after, int bytes) {
  std::vector<ResidualBytes> residuals(static_cast<size_t>(after.workers()));
  if (bytes == 0) return residuals;
  std::map<std::pair<int, int>, int64_t> out, in;  // by worker, block
  for (const StateMove& move : ResidualMovesBetween(before, after)) {
    const int block = after.units()[after.slices()[move.slice].unit].block;
    out[{move.from, block}] += bytes * move.count;
    in[{move.to, block}] += bytes * move.count;
    residuals[static_cast<size_t>(move.from)].sent += bytes * move.count;
  }
  for (int w = 0; w < after.workers(); ++w) {
    residuals[static_cast<size_t>(w)].old = bytes * before.Elements(w);
    residuals[static_cast<size_t>(w)].fresh = bytes * after.Elements(w);
  }
  for (const auto& [where, count] : out) {
    int64_t& most = residuals[static_cast<size_t>(where.first)].out;
    most = std::max(most, count);
  }
  for (const auto& [where, count] : in) {
    int64_t& most = residuals[static_cast<size_t>(where.first)].in;
    most = std::max(most, count);
  }
  return residuals;
}

// Slices in the order in which blocks are moved.
std::vector<int> InBlockOrder(const MaskPlan& plan) {
  std::vector<int> order(plan.slices().size());
  for (size_t s = 0; s < order.size(); ++s) order[s] = static_cast<int>(s);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return plan.units()[plan.slices()[a].unit].block < plan.units()[plan.slices()[b].unit].block;
  });
  return order;
}

// Elements of a block's sets.
struct BlockStates {
  int64_t held = 0;   // of the sets held
  int64_t kept = 0;   // of them, here
  int64_t whole = 0;  // of all sets
  std::vector<std::vector<int>> holders;

  bool operator==(const BlockStates&) const = default;
};

std::vector<BlockStates> StatesOf(const ModelShape& shape, const MaskPlan& plan, int worker, bool sharded) {
  std::vector<BlockStates> blocks(shape.blocks.size() + 1);
  for (const UnitSet& set : UnitSets(plan)) {
    BlockStates& block = blocks[set.block + 1];
    block.whole += set.elements;
    if (!set.Holds(worker)) continue;
    block.held += set.elements;
    block.kept += set.Kept(sharded);
  }
  // Which unit has which holders: blocks that agree in it are left as they are.
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    const auto holders = plan.Holders(u);
    blocks[plan.units()[u].block + 1].holders.emplace_back(holders.begin(), holders.end());
  }
  return blocks;
}

}  // namespace

std::vector<StateMove> MovesBetween(const ModelShape& shape, const MaskPlan& before, const MaskPlan& after,
                                    bool sharded) {
  TESSERA_CHECK(before.slices().size() == after.slices().size());
  const auto had = KeptOf(shape, before, sharded), has = KeptOf(shape, after, sharded);
  std::vector<int64_t> sent(static_cast<size_t>(before.workers()), 0);
  std::vector<StateMove> moves;
  for (int s : InBlockOrder(after)) {
    for (const Kept& to : has[s]) {
      // What it has already is one range; at most two are missing.
      Kept own{to.worker, to.first, to.first};
      for (const Kept& part : had[s]) {
        if (part.worker == to.worker) own = part;
      }
      own.first = std::clamp(own.first, to.first, to.end);
      own.end = std::clamp(own.end, own.first, to.end);
      for (auto [low, high] : {std::pair(to.first, own.first), std::pair(own.end, to.end)}) {
        while (low < high) {
          const Kept* source = nullptr;
          for (const Kept& part : had[s]) {
            if (part.first > low || part.end <= low) continue;
            if (source == nullptr || sent[part.worker] < sent[source->worker]) source = &part;
          }
          TESSERA_CHECK(source != nullptr);
          const int64_t count = std::min(high, source->end) - low;
          moves.push_back({source->worker, to.worker, s, low, count});
          sent[source->worker] += count;
          low += count;
        }
      }
    }
  }
  return moves;
}

std::vector<StateMove> ResidualMovesBetween(const MaskPlan& before, const MaskPlan& after) {
  TESSERA_CHECK(before.slices().size() == after.slices().size());
  std::vector<StateMove> moves;
  for (int s : InBlockOrder(after)) {
    const Slice& slice = after.slices()[s];
    for (int had : before.Holders(slice.unit)) {
      if (after.Holds(had, slice.unit)) continue;
      moves.push_back({had, after.Holders(slice.unit)[0], s, 0, slice.elements});
    }
  }
  return moves;
}

std::vector<MovePrediction> PredictMoves(const ModelShape& shape, const MaskPlan& before,
                                         const MaskPlan& after, const StepShape& step, int residual_bytes) {
  const int64_t e = step.bytes_per_element;
  const bool stored = step.backward_masking && !step.streamed && !step.sharded;
  const std::vector<StateMove> moves = MovesBetween(shape, before, after, step.sharded);
  const std::vector<ResidualBytes> residuals = ResidualsOf(before, after, residual_bytes);
  std::vector<MovePrediction> predictions;
  for (int worker = 0; worker < after.workers(); ++worker) {
    const std::vector<BlockStates> old = StatesOf(shape, before, worker, step.sharded);
    const std::vector<BlockStates> fresh = StatesOf(shape, after, worker, step.sharded);
    std::vector<int64_t> out(old.size(), 0), in(old.size(), 0);  // elements, by block
    MovePrediction& prediction = predictions.emplace_back();
    for (const StateMove& move : moves) {
      const size_t block =
          static_cast<size_t>(int64_t{after.units()[after.slices()[move.slice].unit].block} + 1);
      if (move.from == worker) out[block] += move.count;
      if (move.to == worker) in[block] += move.count;
      if (move.from == worker) prediction.sent += move.count * e * (step.optimizer_slots + (stored ? 0 : 1));
    }
    const auto states = [&](const BlockStates& block) {
      return e * ((stored ? block.whole : block.kept) + step.optimizer_slots * block.kept);
    };
    int64_t live = e * (*std::max_element(out.begin(), out.end()) + *std::max_element(in.begin(), in.end()));
    const ResidualBytes& residual = residuals[static_cast<size_t>(worker)];
    int64_t all_states = 0;
    for (const BlockStates& block : old) all_states += states(block);
    live += all_states + residual.fresh;
    prediction.sent += residual.sent;
    prediction.peak = std::max(live, all_states + residual.old + residual.fresh + residual.out + residual.in);
    for (size_t b = 0; b < old.size(); ++b) {
      if (old[b].holders == fresh[b].holders) continue;
      live += states(fresh[b]);
      // While its states are made, the working memory of a block whose weights come and go is there as well.
      const bool transient =
          step.sharded || (step.backward_masking && step.streamed && fresh[b].held < fresh[b].whole);
      const int64_t working = transient ? (step.backward_masking ? fresh[b].whole : fresh[b].held) : 0;
      prediction.peak = std::max(prediction.peak, live + e * working);
      live -= states(old[b]);
    }
  }
  return predictions;
}

}  // namespace tessera::plan
