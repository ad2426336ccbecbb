#include "worker/dropping/kept_pieces.h"

#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/status_macros.h"
#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/dropping_cost.h"
#include "scheduler/plan/layer_budgets.h"
#include "worker/dropping/sketch.h"
#include "worker/dropping/stopwatch.h"

namespace tessera::worker {
namespace {

using plan::kSpreadElements;  // handed to the optimizer at a time: a multiple of 64

const float* MomentOf(const UnitStore& store, const GroupState& state, const char* name, int64_t offset) {
  const auto& names = store.options().moments;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return nullptr;
  return state.moments[found - names.begin()].const_data_ptr<float>() + (offset - state.begin);
}

// The largest share of a group's holders: what is kept of it at all.
double LargestShare(const UnitGroup& group, const std::vector<double>& shares) {
  double largest = shares.empty() ? 1 : 0;
  for (size_t i = 0; i < group.holders.size() && !shares.empty(); ++i) {
    largest = std::max(largest, shares[group.holders[i]]);
  }
  return largest;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeptPieces>> KeptPieces::Create(UnitStore* store, World* world,
                                                               const DroppingOptions& options, int64_t step,
                                                               at::Tensor residual) {
  TESSERA_RETURN_IF_ERROR(CheckDropping(options, *store));
  auto made = std::unique_ptr<KeptPieces>(new KeptPieces(store, options, step));
  made->residual_ = std::move(residual);
  TESSERA_RETURN_IF_ERROR(made->LayOut(world));
  return made;
}

// A parameter's budget is divided among its groups, and a group's among its shards, in the order of their
// elements; parts that would have none keep one element.
absl::Status KeptPieces::LayOut(World* world) {
  const auto& parameters = store_->model().shape().parameters;
  by_parameter_.resize(parameters.size());
  std::vector<int64_t> before(parameters.size(), 0);  // elements of the parameter in the groups so far
  int64_t residual = 0;
  size_t position = 0;
  for (size_t g = 0; g < store_->groups().size(); ++g) {
    const UnitGroup& group = store_->groups()[g];
    if (position < store_->held().size() && store_->held()[position].group == static_cast<int>(g)) {
      TESSERA_ASSIGN_OR_RETURN(Communicator * holders, world->Group(group.holders));
      groups_.push_back(holders);
      own_sections_.push_back(store_->options().sharded ? holders->rank() : 0);
      const size_t first = pieces_.size();
      AddPieces(static_cast<int>(position), before);
      for (size_t p = first; p < pieces_.size(); ++p) pieces_[p].residual += residual;
      residual += group.elements;
      ++position;
    }
    for (const GroupSlot& slot : group.slots) before[slot.slice.parameter] += slot.slice.elements;
  }
  if (options_.residual != ResidualKeep::kNone && !residual_.defined()) {
    const auto type = options_.residual == ResidualKeep::kBf16 ? at::kBFloat16 : at::kFloat;
    residual_ = at::zeros({residual}, at::device(store_->options().device).dtype(type));
  }
  return absl::OkStatus();
}

void KeptPieces::AddPieces(int position, const std::vector<int64_t>& before) {
  const auto& parameters = store_->model().shape().parameters;
  const GroupState& state = store_->held()[position];
  const UnitGroup& group = store_->groups()[state.group];
  const int64_t sections = store_->options().sharded ? static_cast<int64_t>(group.holders.size()) : 1;
  const int64_t shard = (group.elements + sections - 1) / sections;
  const double share = LargestShare(group, options_.worker_shares);
  int64_t largest_section = 0;
  for (int64_t section = 0; section < sections; ++section) {
    int64_t ring = 0;
    for (const GroupPiece& place : state.pieces) {
      const int64_t low = std::max(place.offset, section * shard),
                    high = std::min(place.offset + place.elements, (section + 1) * shard);
      if (low >= high) continue;
      KeptPiece piece;
      piece.position = position;
      piece.section = static_cast<int>(section);
      piece.tensor =
          (static_cast<int64_t>(state.group) * sections + section) * static_cast<int64_t>(parameters.size()) +
          place.parameter;
      piece.place = place;
      piece.offset = piece.residual = low;
      piece.elements = high - low;
      const int64_t begin = before[place.parameter] + low - place.offset;
      piece.kept = plan::KeptOfPiece(parameters[place.parameter].elements(), options_.kept[place.parameter],
                                     begin, begin + piece.elements, share);
      if (piece.kept < piece.elements) largest_ = std::max(largest_, piece.elements);
      piece.alone = piece.kept < piece.elements && options_.picks_alone();
      piece.room = piece.alone
                       ? std::min(piece.elements, static_cast<int64_t>(group.holders.size()) * piece.kept)
                       : piece.kept;
      piece.ring = std::exchange(ring, ring + piece.room);
      by_parameter_[place.parameter].push_back(static_cast<int>(pieces_.size()));
      pieces_.push_back(std::move(piece));
    }
    largest_section = std::max(largest_section, ring);
  }
  section_elements_.push_back(largest_section);
}

// Moments are known of what this rank keeps alone.
RuleInput KeptPieces::InputOf(const KeptPiece& piece) const {
  const GroupState& state = store_->held()[piece.position];
  RuleInput input;
  input.seed = options_.seed;
  input.tensor = piece.tensor;
  input.step = step_;
  input.elements = piece.elements;
  input.picks = PicksOf(piece.kept, options_.importance_share);
  if (owns(piece)) {
    input.first_moment = MomentOf(*store_, state, "exp_avg", piece.offset);
    input.second_moment = MomentOf(*store_, state, "exp_avg_sq", piece.offset);
  }
  if (options_.residual == ResidualKeep::kFp32) {
    input.residual.fp32 = residual_.const_data_ptr<float>() + piece.residual;
  } else if (options_.residual == ResidualKeep::kBf16) {
    input.residual.bf16 = static_cast<const uint16_t*>(residual_.const_data_ptr()) + piece.residual;
  }
  return input;
}

ResidualView KeptPieces::ResidualOf(const KeptPiece& piece) {
  ResidualView view;
  if (options_.residual == ResidualKeep::kFp32) view.fp32 = residual_.data_ptr<float>() + piece.residual;
  if (options_.residual == ResidualKeep::kBf16) {
    view.bf16 = static_cast<uint16_t*>(residual_.data_ptr()) + piece.residual;
    view.seed = plan::CounterRandom(plan::CounterRandom(options_.seed, static_cast<uint64_t>(store_->rank())),
                                    static_cast<uint64_t>(piece.tensor), static_cast<uint64_t>(step_),
                                    static_cast<uint64_t>(micro_));
  }
  return view;
}

// Whether this rank picks of the piece, or another does for it.
bool KeptPieces::PicksFor(const KeptPiece& piece) const {
  const RuleNeeds needs = options_.rule->needs();
  const Communicator& holders = *groups_[piece.position];
  if (needs.agreement == RuleAgreement::kTurn) return step_ % holders.size() == holders.rank();
  return !needs.first_moment && !needs.second_moment ? true : owns(piece);
}

// What the holders of a group pick, for all its tensors in one message at most.
absl::Status KeptPieces::Pick(int position, const std::vector<KeptPiece*>& pieces) {
  const RuleNeeds needs = options_.rule->needs();
  Communicator& holders = *groups_[position];
  at::Tensor sketches;
  if (needs.agreement == RuleAgreement::kSketch) {
    std::vector<float> all;
    for (const KeptPiece* piece : pieces) {
      const std::vector<float> sketch = device_.Sketch(InputOf(*piece));
      all.insert(all.end(), sketch.begin(), sketch.end());
    }
    sketches = at::empty({static_cast<int64_t>(all.size())}, at::kFloat);
    std::copy(all.begin(), all.end(), sketches.data_ptr<float>());
    if (holders.size() > 1 && !all.empty()) TESSERA_RETURN_IF_ERROR(holders.AllReduceSum(sketches)->Wait());
  }
  int64_t words = 0;
  for (KeptPiece* piece : pieces) words += static_cast<int64_t>(piece->picks.size());
  const at::Tensor message = at::zeros({words}, at::kLong);
  auto* const bits = reinterpret_cast<uint64_t*>(message.data_ptr<int64_t>());
  int64_t word = 0, number = 0;
  for (const KeptPiece* piece : pieces) {
    if (PicksFor(*piece)) {
      RuleInput input = InputOf(*piece);
      if (sketches.defined()) {
        input.sketch =
            absl::MakeConstSpan(sketches.const_data_ptr<float>() + number, SketchElements(input.elements));
        number += SketchElements(input.elements);
      }
      device_.Pick(*options_.rule, input, absl::MakeSpan(bits + word, piece->picks.size()));
    }
    word += static_cast<int64_t>(piece->picks.size());
  }
  if (holders.size() > 1 && needs.agreement == RuleAgreement::kTurn) {
    TESSERA_RETURN_IF_ERROR(holders.Broadcast(message, static_cast<int>(step_ % holders.size())));
  } else if (holders.size() > 1 && store_->options().sharded && (needs.first_moment || needs.second_moment)) {
    // Each has the moments of its own shard, and zeros of the others: the sum is everybody's bits.
    TESSERA_RETURN_IF_ERROR(holders.AllReduceSum(message)->Wait());
  }
  word = 0;
  for (KeptPiece* piece : pieces) {
    std::copy_n(bits + word, piece->picks.size(), piece->picks.begin());
    word += static_cast<int64_t>(piece->picks.size());
  }
  return absl::OkStatus();
}

absl::Status KeptPieces::Select() {
  pick_ = std::exchange(refresh_now_, false) || step_ % options_.refresh == 0;
  for (size_t position = 0; position < groups_.size(); ++position) {
    std::vector<KeptPiece*> picked;
    for (KeptPiece& piece : pieces_) {
      if (piece.position != static_cast<int>(position) || piece.kept == piece.elements) continue;
      if (!pick_ || piece.alone || PicksOf(piece.kept, options_.importance_share) == 0) continue;
      piece.picks.assign((piece.elements + 63) / 64, 0);
      picked.push_back(&piece);
    }
    if (!picked.empty()) TESSERA_RETURN_IF_ERROR(Pick(static_cast<int>(position), picked));
  }
  for (KeptPiece& piece : pieces_) {
    if (piece.alone) continue;  // selected when its gradient comes
    piece.selection = Selection::Make(piece.elements, piece.kept, step_, piece.picks);
    piece.operations = device_.Prepare(piece.selection);
  }
  return absl::OkStatus();
}

void KeptPieces::SelectAlone(KeptPiece& piece, const float* gradient) {
  if (pick_) {
    RuleInput input = InputOf(piece);
    input.gradient = gradient;
    piece.picks.resize((piece.elements + 63) / 64);
    options_.rule->Pick(input, absl::MakeSpan(piece.picks));
  }
  piece.selection = Selection::Make(piece.elements, piece.kept, step_, piece.picks);
  piece.operations = device_.Prepare(piece.selection);
}

void KeptPieces::Join(KeptPiece& piece, std::vector<uint64_t> words) {
  int64_t kept = 0;
  for (const uint64_t word : words) kept += std::popcount(word);
  piece.selection = Selection::Make(piece.elements, kept, step_, std::move(words));
  piece.operations = device_.Prepare(piece.selection);
}

absl::Status KeptPieces::Begin(bool first) {
  if (!first) {
    ++micro_;
    return absl::OkStatus();
  }
  ++step_;
  micro_ = 0;
  const at::NoGradGuard no_grad;
  const Stopwatch stopwatch(&seconds_);
  return Select();
}

void KeptPieces::Cut(KeptPiece& piece, const float* gradient, float* ring) {
  const Stopwatch stopwatch(&seconds_);
  if (piece.alone && !piece.filled) SelectAlone(piece, gradient);
  piece.operations->Cut(gradient, !piece.filled, ResidualOf(piece), ring);
  piece.filled = true;
}

void KeptPieces::CutRows(int parameter, const at::Tensor& rows,
                         const std::function<float*(KeptPiece&)>& ring_of) {
  const GroupPiece* place = nullptr;
  at::Tensor own;
  for (int p : by_parameter_[parameter]) {
    KeptPiece& piece = pieces_[p];
    if (place == nullptr || place->row != piece.place.row) {
      own = rows.narrow(0, piece.place.row, piece.place.rows).contiguous();
    }
    place = &piece.place;
    const float* const gradient = own.const_data_ptr<float>() + (piece.offset - piece.place.offset);
    Cut(piece, gradient, ring_of(piece));
  }
}

void KeptPieces::Return(const KeptPiece& piece, int64_t begin, int64_t end, const float* ring) {
  ResidualView view = ResidualOf(piece);
  view.seed = ~view.seed;
  piece.operations->Return(begin, end, ring, view);
}

void KeptPieces::VisitFrozen(const KeptPiece& piece, StateSpan whole,
                             const GradientReducer::Visitor& visitor) {
  const auto gather = [&](const at::Tensor& from) {
    at::Tensor to = at::empty({piece.selection.kept()}, from.options());
    piece.operations->Gather(from.const_data_ptr<float>(), to.data_ptr<float>());
    return to;
  };
  StateSpan span{gather(whole.parameters), whole.gradients, {}, whole.decay};
  for (const at::Tensor& moment : whole.moments) span.moments.push_back(gather(moment));
  GroupState part;
  part.group = store_->held()[piece.position].group;
  part.spans = {span};
  visitor(part);
  piece.operations->Scatter(span.parameters.const_data_ptr<float>(), whole.parameters.data_ptr<float>());
  for (size_t m = 0; m < whole.moments.size(); ++m) {
    piece.operations->Scatter(span.moments[m].const_data_ptr<float>(), whole.moments[m].data_ptr<float>());
  }
}

void KeptPieces::Visit(int position, const at::Tensor& ring, const GradientReducer::Visitor& visitor) {
  const at::NoGradGuard no_grad;
  const GroupState& state = store_->held()[position];
  const WorkingBlock& working = *store_->Working(store_->groups()[state.group].block);
  at::Tensor scratch;
  for (const KeptPiece& piece : pieces_) {
    if (piece.position != position || !owns(piece)) continue;
    const int64_t elements = piece.elements, at = piece.offset - state.begin;
    StateSpan whole;
    whole.parameters =
        state.parameters.defined()
            ? state.parameters.narrow(0, at, elements)
            : working.memory.narrow(0, piece.place.home + piece.offset - piece.place.offset, elements);
    const int64_t kept = piece.selection.kept();
    whole.gradients = ring.narrow(0, piece.ring, kept);
    whole.decay = piece.place.decay;
    for (const at::Tensor& moment : state.moments) whole.moments.push_back(moment.narrow(0, at, elements));
    GroupState part;
    part.group = state.group;
    if (kept == elements) {
      part.spans = {std::move(whole)};
      visitor(part);
      continue;
    }
    if (options_.fused) {
      whole.kept = piece.operations.get();
      whole.freeze_unsent = options_.freeze_unsent;
      part.spans = {std::move(whole)};
      visitor(part);
      continue;
    }
    if (options_.freeze_unsent) {
      VisitFrozen(piece, std::move(whole), visitor);
      continue;
    }
    if (!scratch.defined()) scratch = at::empty({std::min(kSpreadElements, largest_)}, ring.options());
    for (int64_t begin = 0; begin < elements; begin += kSpreadElements) {
      const int64_t count = std::min(kSpreadElements, elements - begin);
      {
        const Stopwatch stopwatch(&seconds_);
        piece.operations->Spread(begin, count, whole.gradients.const_data_ptr<float>(),
                                 scratch.data_ptr<float>());
      }
      StateSpan span{whole.parameters.narrow(0, begin, count), scratch.narrow(0, 0, count), {}, whole.decay};
      for (const at::Tensor& moment : whole.moments) span.moments.push_back(moment.narrow(0, begin, count));
      part.spans = {std::move(span)};
      visitor(part);
    }
  }
}

const KeptPiece* KeptPieces::Own(int position, int parameter) const {
  for (int p : by_parameter_[parameter]) {
    if (pieces_[p].position == position && owns(pieces_[p])) return &pieces_[p];
  }
  return nullptr;
}

uint32_t KeptPieces::SelectionCheck() const {
  uint32_t check = 0;
  for (size_t position = 0; position < groups_.size(); ++position) {
    const UnitGroup& group = store_->groups()[store_->held()[position].group];
    uint64_t hash = 0;
    for (const KeptPiece& piece : pieces_) {
      if (piece.position != static_cast<int>(position)) continue;
      hash = plan::CounterRandom(hash, static_cast<uint64_t>(piece.tensor), piece.selection.Fingerprint());
    }
    // The owner's counts for all others', so that the sum over ranks is zero if all are the same.
    const auto one = static_cast<uint32_t>(hash);
    const auto others = static_cast<uint32_t>(group.holders.size() - 1);
    check += group.owner() == store_->rank() ? others * one : -one;
  }
  return check;
}

double KeptPieces::kept_ratio() const {
  double kept = 0, elements = 0;
  for (const KeptPiece& piece : pieces_) {
    const UnitGroup& group = store_->groups()[store_->held()[piece.position].group];
    const double share = options_.worker_shares.empty() ? 1
                                                        : options_.worker_shares[store_->rank()] /
                                                              LargestShare(group, options_.worker_shares);
    kept += share * static_cast<double>(piece.kept);
    elements += static_cast<double>(piece.elements);
  }
  return elements > 0 ? kept / elements : 1;
}

}  // namespace tessera::worker
