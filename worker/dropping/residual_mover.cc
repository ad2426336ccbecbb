#include "worker/dropping/residual_mover.h"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "scheduler/plan/mask_schedule.h"
#include "worker/parallel/unit_groups.h"

namespace tessera::worker {
namespace {

using plan::MaskPlan;
using plan::StateMove;

// Where a rank has the slices of a plan in its residual; -1: it does not hold them.
struct Places {
  std::vector<int64_t> first;  // by slice
  int64_t elements = 0;        // of all
};

Places PlacesOf(const plan::ModelShape& shape, const MaskPlan& plan, int rank) {
  std::map<std::tuple<int, int, int64_t>, size_t> known;
  const auto& slices = plan.slices();
  for (size_t s = 0; s < slices.size(); ++s)
    known[{slices[s].unit, slices[s].parameter, slices[s].begin}] = s;
  Places places{std::vector<int64_t>(slices.size(), -1), 0};
  for (const UnitGroup& group : GroupUnits(shape, plan)) {
    if (!group.Holds(rank)) continue;
    for (const GroupSlot& slot : group.slots) {
      places.first[known.at({slot.slice.unit, slot.slice.parameter, slot.slice.begin})] =
          places.elements + slot.offset;
    }
    places.elements += group.elements;
  }
  return places;
}

struct Exchanged {
  std::vector<int64_t> to, from;        // elements, by rank
  std::vector<int64_t> to_at, from_at;  // where they begin
  int64_t out = 0, in = 0;
};

Exchanged CountMoves(const std::vector<StateMove>& moves, int rank, int ranks) {
  Exchanged counts;
  counts.to.assign(ranks, 0);
  counts.from.assign(ranks, 0);
  for (const StateMove& move : moves) {
    if (move.from == rank) counts.to[move.to] += move.count;
    if (move.to == rank) counts.from[move.from] += move.count;
  }
  for (int r = 0; r < ranks; ++r) {
    counts.to_at.push_back(std::exchange(counts.out, counts.out + counts.to[r]));
    counts.from_at.push_back(std::exchange(counts.in, counts.in + counts.from[r]));
  }
  return counts;
}

}  // namespace

absl::StatusOr<at::Tensor> MoveResidual(const plan::ModelShape& shape, const MaskPlan& before,
                                        const MaskPlan& after, const at::Tensor& residual,
                                        Communicator& all) {
  const at::NoGradGuard no_grad;
  const int rank = all.rank(), ranks = all.size();
  const Places old = PlacesOf(shape, before, rank), fresh = PlacesOf(shape, after, rank);
  at::Tensor moved = at::zeros({fresh.elements}, residual.options());
  const auto block_of = [&](int slice) { return after.units()[after.slices()[slice].unit].block + 1; };
  std::vector<std::vector<StateMove>> moves(shape.blocks.size() + 1);
  for (const StateMove& move : plan::ResidualMovesBetween(before, after)) {
    moves[block_of(move.slice)].push_back(move);
  }
  std::vector<std::vector<int>> stay(moves.size());  // slices
  for (int s = 0; s < static_cast<int>(after.slices().size()); ++s) {
    if (old.first[s] >= 0 && fresh.first[s] >= 0) stay[block_of(s)].push_back(s);
  }
  // Used for all exchanges: one that is over may be held on to a while longer by who carried it out.
  int64_t most_out = 0, most_in = 0;
  for (const std::vector<StateMove>& of : moves) {
    const Exchanged counts = CountMoves(of, rank, ranks);
    most_out = std::max(most_out, counts.out);
    most_in = std::max(most_in, counts.in);
  }
  const at::Tensor out = at::empty({most_out}, residual.options());
  const at::Tensor in = at::empty({most_in}, residual.options());
  const auto add = [&](int slice, const at::Tensor& value) {
    moved.narrow(0, fresh.first[slice], value.numel()).add_(value);
  };
  for (size_t block = 0; block < moves.size(); ++block) {
    Exchanged counts = CountMoves(moves[block], rank, ranks);
    const at::Tensor received = in.narrow(0, 0, counts.in);
    if (!moves[block].empty()) {
      for (const StateMove& move : moves[block]) {
        if (move.from != rank) continue;
        out.narrow(0, counts.to_at[move.to], move.count)
            .copy_(residual.narrow(0, old.first[move.slice], move.count));
        counts.to_at[move.to] += move.count;
      }
      TESSERA_RETURN_IF_ERROR(
          all.StartExchange(out.narrow(0, 0, counts.out), counts.to, received, counts.from)->Wait());
    }
    for (int from = 0; from < ranks; ++from) {
      for (int s : stay[block]) {
        if (from == rank) add(s, residual.narrow(0, old.first[s], after.slices()[s].elements));
      }
      for (const StateMove& move : moves[block]) {
        if (move.from != from || move.to != rank) continue;
        add(move.slice, received.narrow(0, counts.from_at[from], move.count));
        counts.from_at[from] += move.count;
      }
    }
  }
  return moved;
}

}  // namespace tessera::worker
