#include "scheduler/plan/mask_schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "scheduler/plan/counter_random.h"

namespace tessera::plan {
namespace {

// Keep the numbers of blocks and of chunks apart.
constexpr uint64_t kBlockStream = 0x626c6f636bULL, kChunkStream = 0x6368756e6bULL;

// Of a unit, what others must have in common with it.
using UnitKey = std::tuple<Axis, bool, int64_t, double>;
UnitKey KeyOf(const Unit& unit) { return {unit.axis, unit.always_on, unit.elements, unit.flops_per_token}; }

std::vector<std::vector<int>> UnitsOfBlocks(const ModelShape& shape, const MaskPlan& plan) {
  std::vector<std::vector<int>> units(shape.blocks.size());
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    if (plan.units()[u].block != kNoBlock) units[plan.units()[u].block].push_back(u);
  }
  return units;
}

// `members` in an order drawn by (seed, period).
std::vector<int> Shuffled(const std::vector<int>& members, uint64_t seed, int64_t period) {
  std::vector<int> order = members;
  const auto key = [&](int member) {
    return std::pair(CounterRandom(seed, static_cast<uint64_t>(period), static_cast<uint64_t>(member)),
                     member);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  return order;
}

}  // namespace

int64_t MaskPeriod(const MaskSchedule& schedule, int64_t finished) {
  return schedule.every > 0 ? finished / schedule.every % kMaskPeriods : 0;
}

MaskPlan MasksOfPeriod(const ModelShape& shape, const MaskPlan& first, uint64_t seed, int64_t period) {
  if (period == 0) return first;
  const std::vector<std::vector<int>> units = UnitsOfBlocks(shape, first);
  std::map<std::pair<int, std::vector<UnitKey>>, std::vector<int>> alike;
  for (int block = 0; block < static_cast<int>(units.size()); ++block) {
    std::vector<UnitKey> keys;
    for (int u : units[block]) keys.push_back(KeyOf(first.units()[u]));
    alike[{shape.blocks[block].kind, std::move(keys)}].push_back(block);
  }
  std::vector<int> source(first.units().size());  // whose holders a unit gets
  std::iota(source.begin(), source.end(), 0);
  for (const auto& [key, blocks] : alike) {
    const std::vector<int> from = Shuffled(blocks, seed ^ kBlockStream, period);
    for (size_t b = 0; b < blocks.size(); ++b) {
      const std::vector<int>& own = units[blocks[b]];
      std::map<UnitKey, std::vector<int>> chunks;  // positions in the block
      for (size_t i = 0; i < own.size(); ++i) {
        chunks[KeyOf(first.units()[own[i]])].push_back(static_cast<int>(i));
      }
      for (const auto& [chunk, positions] : chunks) {
        const uint64_t stream = CounterRandom(seed ^ kChunkStream, static_cast<uint64_t>(blocks[b]),
                                              static_cast<uint64_t>(positions[0]));
        const std::vector<int> traded = Shuffled(positions, stream, period);
        for (size_t i = 0; i < positions.size(); ++i) {
          source[own[positions[i]]] = units[from[b]][traded[i]];
        }
      }
    }
  }
  std::vector<std::vector<int>> holders;
  for (int u : source) holders.emplace_back(first.Holders(u).begin(), first.Holders(u).end());
  return {first.workers(), first.units(), std::move(holders), first.slices()};
}

bool CanResample(const ModelShape& shape, const MaskPlan& first) {
  const bool all_held = std::all_of(first.units().begin(), first.units().end(), [&](const Unit& unit) {
    return static_cast<int>(first.Holders(static_cast<int>(&unit - first.units().data())).size()) ==
           first.workers();
  });
  if (all_held) return true;
  constexpr int64_t kTried = 8;  // that none of them changes anything by chance is out of the question
  for (int64_t period = 1; period <= kTried; ++period) {
    if (MasksOfPeriod(shape, first, 1, period).Fingerprint() != first.Fingerprint()) return true;
  }
  return false;
}

std::vector<MaskPlan> MasksOfRun(const ModelShape& shape, const MaskPlan& first, const MaskSchedule& schedule,
                                 int64_t steps) {
  std::vector<MaskPlan> masks{first};
  if (schedule.every <= 0 || steps < 1) return masks;
  const int64_t changes = std::min((steps - 1) / schedule.every, kMaskPeriods - 1);
  for (int64_t period = 1; period <= changes; ++period) {
    masks.push_back(MasksOfPeriod(shape, first, schedule.seed, period));
  }
  return masks;
}

ResamplingPrediction PredictResampling(const ModelShape& shape, absl::Span<const MaskPlan> masks,
                                       const StepShape& step, int residual_bytes) {
  ResamplingPrediction all;
  const int workers = masks[0].workers();
  all.workers.resize(static_cast<size_t>(workers));
  // Where the sequence is shorter than its ring, the step back to its beginning is the run that starts again.
  const size_t changes = masks.size() < 2               ? 0
                         : masks.size() == kMaskPeriods ? masks.size()
                                                        : masks.size() - 1;
  double held = 0, fresh = 0;
  for (size_t p = 0; p < changes; ++p) {
    const MaskPlan &before = masks[p], &after = masks[(p + 1) % masks.size()];
    const std::vector<MovePrediction> moves = PredictMoves(shape, before, after, step, residual_bytes);
    for (int w = 0; w < workers; ++w) {
      const MovePrediction& move = moves[static_cast<size_t>(w)];
      MovePrediction& most = all.workers[static_cast<size_t>(w)];
      most.peak = std::max(most.peak, move.peak);
      most.sent = std::max(most.sent, move.sent);
      all.mean_sent += static_cast<double>(move.sent) / static_cast<double>(changes);
      for (int u = 0; u < static_cast<int>(after.units().size()); ++u) {
        if (after.units()[u].always_on || !after.Holds(w, u)) continue;
        held += static_cast<double>(after.units()[u].elements);
        if (!before.Holds(w, u)) fresh += static_cast<double>(after.units()[u].elements);
      }
    }
  }
  if (held > 0) all.moved_share = fresh / held;
  return all;
}

}  // namespace tessera::plan
