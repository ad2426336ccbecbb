#include "worker/parallel/state_mover.h"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "scheduler/plan/mask_schedule.h"

namespace tessera::worker {
namespace {

using plan::MaskPlan;
using plan::StateMove;

// Where a store has the slices of its plan.
class SlicePlaces {
 public:
  explicit SlicePlaces(const UnitStore& store) : store_(store) {
    std::map<std::tuple<int, int, int64_t>, int> known;
    const auto& slices = store.plan().slices();
    for (size_t s = 0; s < slices.size(); ++s) {
      known[{slices[s].unit, slices[s].parameter, slices[s].begin}] = static_cast<int>(s);
    }
    places_.resize(slices.size());
    for (size_t g = 0; g < store.groups().size(); ++g) {
      for (const GroupSlot& slot : store.groups()[g].slots) {
        const int s = known.at({slot.slice.unit, slot.slice.parameter, slot.slice.begin});
        places_[s] = {static_cast<int>(g), slot.offset};
      }
    }
  }

  int group(int slice) const { return places_[slice].group; }
  int64_t offset(int slice) const { return places_[slice].offset; }  // in the group

  // Elements [first, first + count) of a slice that is kept here. kind as UnitStore::SetFlat.
  at::Tensor Kept(int slice, int64_t first, int64_t count, int kind) const {
    const GroupState* state = store_.Find(group(slice));
    TESSERA_CHECK(state != nullptr);
    const int64_t low = offset(slice) + first;
    TESSERA_CHECK(low >= state->begin && low + count <= state->end);
    if (kind == 0) return store_.ParameterRange(*state, low, low + count).detach();
    return state->moments[kind - 1].narrow(0, low - state->begin, count);
  }

  // What is kept here of a slice: first and end; equal if nothing is.
  std::pair<int64_t, int64_t> Range(int slice) const {
    const GroupState* state = store_.Find(group(slice));
    if (state == nullptr) return {0, 0};
    const int64_t elements = store_.plan().slices()[slice].elements, begin = offset(slice);
    return {std::clamp<int64_t>(state->begin - begin, 0, elements),
            std::clamp<int64_t>(state->end - begin, 0, elements)};
  }

  // The whole slice in the working memory of its block, held or not.
  at::Tensor Working(int slice) const {
    const WorkingBlock& working = *store_.Working(store_.groups()[group(slice)].block);
    const auto position =
        std::find(working.groups.begin(), working.groups.end(), group(slice)) - working.groups.begin();
    const int64_t low = offset(slice), count = store_.plan().slices()[slice].elements;
    for (const GroupPiece& piece : working.layout.pieces[position]) {
      if (piece.offset > low || piece.offset + piece.elements < low + count) continue;
      return working.memory.variable_data().narrow(0, piece.home + low - piece.offset, count);
    }
    TESSERA_CHECK(false);
    return {};
  }

 private:
  struct Place {
    int group = 0;
    int64_t offset = 0;
  };
  const UnitStore& store_;
  std::vector<Place> places_;
};

class Mover {
 public:
  Mover(UnitStore& old, UnitStore& fresh, Communicator& all)
      : old_(old),
        fresh_(fresh),
        all_(all),
        from_(old),
        to_(fresh),
        stored_(old.options().backward_masking && !old.options().streamed && !old.options().sharded) {
    const plan::ModelShape& shape = old.model().shape();
    moves_.resize(shape.blocks.size() + 1);
    slices_.resize(shape.blocks.size() + 1);
    const auto block_of = [&](int slice) {
      return static_cast<size_t>(old.plan().units()[old.plan().slices()[slice].unit].block + 1);
    };
    for (const StateMove& move : plan::MovesBetween(shape, old.plan(), fresh.plan(), old.options().sharded)) {
      moves_[block_of(move.slice)].push_back(move);
    }
    for (int s = 0; s < static_cast<int>(old.plan().slices().size()); ++s) slices_[block_of(s)].push_back(s);
    // Used for all exchanges: one that is over may be held on to a while longer by who carried it out.
    int64_t most_out = 0, most_in = 0;
    for (const std::vector<StateMove>& moves : moves_) {
      int64_t sent = 0, received = 0;
      for (const StateMove& move : moves) {
        if (move.from == all.rank()) sent += move.count;
        if (move.to == all.rank()) received += move.count;
      }
      most_out = std::max(most_out, sent);
      most_in = std::max(most_in, received);
    }
    out_ = at::empty({most_out}, old.floats());
    in_ = at::empty({most_in}, old.floats());
  }

  absl::Status Move(int block) {
    if (SameHolders(block)) {
      fresh_.AdoptBlock(block, old_);
      return absl::OkStatus();
    }
    fresh_.AddBlock(block);
    const int kinds = 1 + static_cast<int>(old_.options().moments.size());
    for (int kind = 0; kind < kinds; ++kind) {
      if (kind == 0 && stored_) {
        for (int s : slices_[block + 1]) to_.Working(s).copy_(from_.Working(s));
        continue;
      }
      CopyOwn(block, kind);
      TESSERA_RETURN_IF_ERROR(Exchange(moves_[block + 1], kind));
    }
    old_.DropBlock(block);
    return absl::OkStatus();
  }

 private:
  bool SameHolders(int block) const {
    const MaskPlan &before = old_.plan(), &after = fresh_.plan();
    for (int u = 0; u < static_cast<int>(before.units().size()); ++u) {
      if (before.units()[u].block == block && before.Holders(u) != after.Holders(u)) return false;
    }
    return true;
  }

  void Set(int slice, int64_t first, int kind, const at::Tensor& value) {
    GroupState* state = nullptr;
    for (GroupState& held : fresh_.held()) {
      if (held.group == to_.group(slice)) state = &held;
    }
    TESSERA_CHECK(state != nullptr);
    fresh_.SetFlat(*state, kind, to_.offset(slice) + first, value);
  }

  void CopyOwn(int block, int kind) {
    for (int s : slices_[block + 1]) {
      const auto [had, had_end] = from_.Range(s);
      const auto [has, has_end] = to_.Range(s);
      const int64_t low = std::max(had, has), high = std::min(had_end, has_end);
      if (low < high) Set(s, low, kind, from_.Kept(s, low, high - low, kind));
    }
  }

  absl::Status Exchange(const std::vector<StateMove>& moves, int kind) {
    if (moves.empty()) return absl::OkStatus();
    const int ranks = all_.size(), rank = all_.rank();
    std::vector<int64_t> to(ranks, 0), from(ranks, 0);
    for (const StateMove& move : moves) {
      if (move.from == rank) to[move.to] += move.count;
      if (move.to == rank) from[move.from] += move.count;
    }
    const auto starts = [&](const std::vector<int64_t>& counts) {
      std::vector<int64_t> start(ranks, 0);
      for (int i = 1; i < ranks; ++i) start[i] = start[i - 1] + counts[i - 1];
      return start;
    };
    std::vector<int64_t> out_at = starts(to), in_at = starts(from);
    const at::Tensor out = out_.narrow(0, 0, out_at.back() + to.back());
    const at::Tensor in = in_.narrow(0, 0, in_at.back() + from.back());
    for (const StateMove& move : moves) {
      if (move.from != rank) continue;
      out.narrow(0, out_at[move.to], move.count).copy_(from_.Kept(move.slice, move.first, move.count, kind));
      out_at[move.to] += move.count;
    }
    TESSERA_RETURN_IF_ERROR(all_.StartExchange(out, to, in, from)->Wait());
    for (const StateMove& move : moves) {
      if (move.to != rank) continue;
      Set(move.slice, move.first, kind, in.narrow(0, in_at[move.from], move.count));
      in_at[move.from] += move.count;
    }
    return absl::OkStatus();
  }

  UnitStore& old_;
  UnitStore& fresh_;
  Communicator& all_;
  const SlicePlaces from_, to_;
  const bool stored_;
  std::vector<std::vector<StateMove>> moves_;  // by block + 1
  std::vector<std::vector<int>> slices_;       // by block + 1
  at::Tensor out_, in_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnitStore>> MoveStates(std::unique_ptr<UnitStore> old,
                                                      const plan::MaskPlan& after, Communicator& all) {
  const at::NoGradGuard no_grad;
  auto fresh = UnitStore::CreateEmpty(old->model(), after, old->rank(), old->options());
  const plan::ModelShape& shape = old->model().shape();
  fresh->AdoptBuffers(*old);
  {
    Mover mover(*old, *fresh, all);
    for (int block = plan::kNoBlock; block < static_cast<int>(shape.blocks.size()); ++block) {
      TESSERA_RETURN_IF_ERROR(mover.Move(block));
    }
  }
  return fresh;
}

}  // namespace tessera::worker
