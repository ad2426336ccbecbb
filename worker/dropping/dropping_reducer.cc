#include "worker/dropping/dropping_reducer.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/dropping_cost.h"
#include "scheduler/plan/layer_budgets.h"
#include "worker/dropping/sketch.h"

namespace tessera::worker {
namespace {

using plan::kSpreadElements;  // handed to the optimizer at a time: a multiple of 64

absl::Status Check(const UnitStore& store, const DroppingOptions& options) {
  const RuleNeeds needs = options.rule->needs();
  const std::string rule(options.rule->name());
  if (needs.agreement == RuleAgreement::kNone) {
    return absl::UnimplementedError(absl::StrCat(
        "spec.dropping.rule: '", rule, "' sends indices and is not available yet; use cyclic_top_k"));
  }
  if (needs.residual && options.residual == ResidualKeep::kNone) {
    return absl::InvalidArgumentError(absl::StrCat("spec.dropping.residual: none, but rule '", rule,
                                                   "' picks by the residual; use bf16 or fp32"));
  }
  const auto& moments = store.options().moments;
  const auto has = [&](const char* name) {
    return std::find(moments.begin(), moments.end(), name) != moments.end();
  };
  if (options.importance_share > 0 &&
      ((needs.second_moment && !has("exp_avg_sq")) || (needs.first_moment && !has("exp_avg")))) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.dropping.rule: '", rule,
                     "' needs the moments of spec.optimizer.name adamw; use rotation or cyclic_top_k"));
  }
  if (store.options().sharded) {
    return absl::UnimplementedError(
        "spec.dropping.mode: enforce is not available with spec.sharding fsdp; use none");
  }
  const auto& parameters = store.model().shape().parameters;
  if (options.kept.size() != parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has budgets for ", options.kept.size(), " of ",
                                                   parameters.size(), " parameters"));
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (options.kept[p] < 1 || options.kept[p] > parameters[p].elements()) {
      return absl::InvalidArgumentError(absl::StrCat("the plan's budget of ", parameters[p].name, " is ",
                                                     options.kept[p], " of ", parameters[p].elements(),
                                                     " elements"));
    }
    if (parameters[p].elements() > Rotation::kMostElements) {
      return absl::UnimplementedError(absl::StrCat(parameters[p].name, " has ", parameters[p].elements(),
                                                   " elements; dropping serves tensors of up to ",
                                                   Rotation::kMostElements));
    }
  }
  return absl::OkStatus();
}

const float* MomentOf(const UnitStore& store, const GroupState& state, const char* name, int64_t offset) {
  const auto& names = store.options().moments;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return nullptr;
  return state.moments[found - names.begin()].const_data_ptr<float>() + offset;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DroppingReducer>> DroppingReducer::Create(UnitStore* store, World* world,
                                                                         const ReducerOptions& reducer,
                                                                         const DroppingOptions& options,
                                                                         int64_t step, at::Tensor residual) {
  TESSERA_RETURN_IF_ERROR(Check(*store, options));
  TESSERA_RETURN_IF_ERROR(ConnectHolders(store->plan(), store->rank(), world));
  auto made = std::unique_ptr<DroppingReducer>(new DroppingReducer(store, world, reducer, options, step));
  made->residual_ = std::move(residual);
  TESSERA_RETURN_IF_ERROR(made->LayOut());
  made->Install();
  return made;
}

DroppingReducer::~DroppingReducer() {
  for (Bucket& bucket : buckets_) {
    if (bucket.work != nullptr) bucket.work->Wait().IgnoreError();
  }
}

absl::Status DroppingReducer::LayOut() {
  const auto& parameters = store_->model().shape().parameters;
  by_parameter_.resize(parameters.size());
  int64_t ring = 0, residual = 0;
  std::vector<int64_t> before(parameters.size(), 0);  // elements of the parameter in the groups so far
  size_t position = 0;
  for (size_t g = 0; g < store_->groups().size(); ++g) {
    const UnitGroup& group = store_->groups()[g];
    std::vector<int64_t> of(parameters.size(), 0), kept(parameters.size(), 0);
    for (const GroupSlot& slot : group.slots) of[slot.slice.parameter] += slot.slice.elements;
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (of[p] == 0) continue;
      kept[p] = plan::KeptOfPart(parameters[p].elements(), dropping_.kept[p], before[p], before[p] + of[p]);
      kept[p] = std::max<int64_t>(1, kept[p]);
      before[p] += of[p];
    }
    if (position == store_->held().size() || store_->held()[position].group != static_cast<int>(g)) continue;
    TESSERA_ASSIGN_OR_RETURN(Communicator * holders, world_->Group(group.holders));
    groups_.push_back(holders);
    const int64_t begin = ring;
    const size_t first = pieces_.size();
    first_pieces_.push_back(first);
    for (const GroupPiece& place : store_->held()[position].pieces) {
      Piece piece;
      piece.position = static_cast<int>(position);
      piece.tensor = static_cast<int64_t>(g * parameters.size()) + place.parameter;
      piece.place = place;
      piece.kept = kept[place.parameter];
      if (piece.kept < place.elements) largest_ = std::max(largest_, place.elements);
      piece.ring = std::exchange(ring, ring + piece.kept);
      piece.residual = std::exchange(residual, residual + place.elements);
      by_parameter_[place.parameter].push_back(static_cast<int>(pieces_.size()));
      pieces_.push_back(std::move(piece));
    }
    spans_.emplace_back(begin, ring);
    CutIntoBuckets(static_cast<int>(position), first);
    ++position;
  }
  ring_ = at::zeros({ring}, at::kFloat);
  if (dropping_.residual != ResidualKeep::kNone && !residual_.defined()) {
    residual_ = at::zeros({residual}, dropping_.residual == ResidualKeep::kBf16 ? at::kBFloat16 : at::kFloat);
  }
  OrderBuckets();
  for (Piece& piece : pieces_) piece.bucket = BucketAt(piece.position, piece.ring);
  return absl::OkStatus();
}

void DroppingReducer::CutIntoBuckets(int position, size_t first_piece) {
  Bucket bucket;
  for (size_t p = pieces_.size(); p-- > first_piece;) {
    const Piece& piece = pieces_[p];
    if (bucket.parts == 0) bucket.lowest_parameter = piece.place.parameter;
    bucket.position = position;
    bucket.offset = piece.ring;
    bucket.elements += piece.kept;
    bucket.lowest_parameter = std::min(bucket.lowest_parameter, piece.place.parameter);
    ++bucket.parts;
    if (bucket.elements * 4 < options_.bucket_bytes && p > first_piece) continue;
    buckets_.push_back(std::move(bucket));
    bucket = Bucket();
  }
}

RuleInput DroppingReducer::InputOf(const Piece& piece) const {
  const GroupState& state = store_->held()[piece.position];
  RuleInput input;
  input.seed = dropping_.seed;
  input.tensor = piece.tensor;
  input.step = step_;
  input.elements = piece.place.elements;
  input.picks = PicksOf(piece.kept, dropping_.importance_share);
  input.first_moment = MomentOf(*store_, state, "exp_avg", piece.place.offset);
  input.second_moment = MomentOf(*store_, state, "exp_avg_sq", piece.place.offset);
  if (dropping_.residual == ResidualKeep::kFp32) {
    input.residual.fp32 = residual_.const_data_ptr<float>() + piece.residual;
  } else if (dropping_.residual == ResidualKeep::kBf16) {
    input.residual.bf16 = static_cast<const uint16_t*>(residual_.const_data_ptr()) + piece.residual;
  }
  return input;
}

ResidualView DroppingReducer::ResidualOf(const Piece& piece) {
  ResidualView view;
  if (dropping_.residual == ResidualKeep::kFp32) view.fp32 = residual_.data_ptr<float>() + piece.residual;
  if (dropping_.residual == ResidualKeep::kBf16) {
    view.bf16 = static_cast<uint16_t*>(residual_.data_ptr()) + piece.residual;
    view.seed = plan::CounterRandom(
        plan::CounterRandom(dropping_.seed, static_cast<uint64_t>(store_->rank())),
        static_cast<uint64_t>(piece.tensor), static_cast<uint64_t>(step_), static_cast<uint64_t>(micro_));
  }
  return view;
}

// What the holders of a group pick, for all its tensors in one message at most.
absl::Status DroppingReducer::Pick(int position, const std::vector<Piece*>& pieces) {
  const RuleAgreement agreement = dropping_.rule->needs().agreement;
  Communicator& holders = *groups_[position];
  const bool mine = agreement != RuleAgreement::kTurn || step_ % holders.size() == holders.rank();
  at::Tensor sketches;
  if (agreement == RuleAgreement::kSketch) {
    std::vector<float> all;
    for (const Piece* piece : pieces) {
      const std::vector<float> sketch = SketchOf(InputOf(*piece));
      all.insert(all.end(), sketch.begin(), sketch.end());
    }
    sketches = at::empty({static_cast<int64_t>(all.size())}, at::kFloat);
    std::copy(all.begin(), all.end(), sketches.data_ptr<float>());
    if (holders.size() > 1 && !all.empty()) TESSERA_RETURN_IF_ERROR(holders.AllReduceSum(sketches)->Wait());
  }
  int64_t words = 0;
  for (Piece* piece : pieces) words += static_cast<int64_t>(piece->picks.size());
  const at::Tensor message = at::empty({words}, at::kLong);
  auto* const bits = reinterpret_cast<uint64_t*>(message.data_ptr<int64_t>());
  int64_t word = 0, number = 0;
  for (const Piece* piece : pieces) {
    if (mine) {
      RuleInput input = InputOf(*piece);
      if (sketches.defined()) {
        input.sketch =
            absl::MakeConstSpan(sketches.const_data_ptr<float>() + number, SketchElements(input.elements));
        number += SketchElements(input.elements);
      }
      dropping_.rule->Pick(input, absl::MakeSpan(bits + word, piece->picks.size()));
    }
    word += static_cast<int64_t>(piece->picks.size());
  }
  if (agreement == RuleAgreement::kTurn && holders.size() > 1) {
    TESSERA_RETURN_IF_ERROR(holders.Broadcast(message, static_cast<int>(step_ % holders.size())));
  }
  word = 0;
  for (Piece* piece : pieces) {
    std::copy_n(bits + word, piece->picks.size(), piece->picks.begin());
    word += static_cast<int64_t>(piece->picks.size());
  }
  return absl::OkStatus();
}

absl::Status DroppingReducer::Select() {
  const bool pick = std::exchange(refresh_now_, false) || step_ % dropping_.refresh == 0;
  for (size_t position = 0; position < groups_.size(); ++position) {
    std::vector<Piece*> picked;
    for (Piece& piece : pieces_) {
      if (piece.position != static_cast<int>(position) || piece.kept == piece.place.elements) continue;
      if (!pick || PicksOf(piece.kept, dropping_.importance_share) == 0) continue;
      piece.picks.assign((piece.place.elements + 63) / 64, 0);
      picked.push_back(&piece);
    }
    if (!picked.empty()) TESSERA_RETURN_IF_ERROR(Pick(static_cast<int>(position), picked));
  }
  for (Piece& piece : pieces_) {
    piece.selection = Selection::Make(piece.place.elements, piece.kept, step_, piece.picks);
  }
  return absl::OkStatus();
}

void DroppingReducer::OnBegin() {
  BucketedReducer::OnBegin();
  if (first_) {
    ++step_;
    micro_ = 0;
    const at::NoGradGuard no_grad;
    status_ = Select();
  } else {
    ++micro_;
  }
  for (Piece& piece : pieces_) {
    if (first_) piece.filled = false;
    piece.seen = false;
  }
}

void DroppingReducer::Cut(Piece& piece, const float* gradient) {
  CutGradient(piece.selection, gradient, !piece.filled, ResidualOf(piece),
              ring_.data_ptr<float>() + piece.ring);
  piece.filled = true;
}

void DroppingReducer::Accept(int parameter, const at::Tensor& rows) {
  if (!status_.ok()) return;  // EndMicroStep tells
  for (int p : by_parameter_[parameter]) {
    Piece& piece = pieces_[p];
    const at::Tensor own = rows.narrow(0, piece.place.row, piece.place.rows).contiguous();
    Cut(piece, own.const_data_ptr<float>());
    if (piece.seen) continue;  // a graph that accumulates twice in one backward
    piece.seen = true;
    PartCame(piece.bucket);
  }
  if (last_) StartReady(false);
}

void DroppingReducer::LeaveBlock(int block) {
  if (status_.ok()) BucketedReducer::LeaveBlock(block);
}

absl::Status DroppingReducer::EndMicroStep() {
  TESSERA_RETURN_IF_ERROR(status_);
  return BucketedReducer::EndMicroStep();
}

at::Tensor DroppingReducer::MemoryOf(const Bucket& bucket) {
  return ring_.narrow(0, bucket.offset, bucket.elements);
}

void DroppingReducer::FillIn(int bucket) {
  for (Piece& piece : pieces_) {
    if (piece.bucket == bucket && !piece.filled) Cut(piece, nullptr);
  }
}

at::Tensor DroppingReducer::Sum(int position) const {
  return ring_.narrow(0, spans_[position].first, spans_[position].second - spans_[position].first);
}

at::Tensor DroppingReducer::SumOfPiece(int position, int piece) const {
  const Piece& of = pieces_[first_pieces_[position] + piece];
  return ring_.narrow(0, of.ring, of.kept);
}

// Part by part with the gradient spread out, zeros for what was not sent; or, frozen, what was sent alone.
void DroppingReducer::Visit(int position, const Visitor& visitor) {
  const at::NoGradGuard no_grad;
  const GroupState& state = store_->held()[position];
  const WorkingBlock& working = *store_->Working(store_->groups()[state.group].block);
  at::Tensor scratch;
  for (const Piece& piece : pieces_) {
    if (piece.position != position) continue;
    const int64_t elements = piece.place.elements;
    const at::Tensor parameters = state.parameters.defined()
                                      ? state.parameters.narrow(0, piece.place.offset, elements)
                                      : working.memory.narrow(0, piece.place.home, elements);
    std::vector<at::Tensor> moments;
    for (const at::Tensor& moment : state.moments)
      moments.push_back(moment.narrow(0, piece.place.offset, elements));
    const at::Tensor kept = ring_.narrow(0, piece.ring, piece.kept);
    GroupState part;
    part.group = state.group;
    if (dropping_.freeze_unsent && piece.kept < elements) {
      const auto gather = [&](const at::Tensor& from) {
        at::Tensor to = at::empty({piece.kept}, at::kFloat);
        GatherKept(piece.selection, from.const_data_ptr<float>(), to.data_ptr<float>());
        return to;
      };
      StateSpan span{gather(parameters), kept, {}, piece.place.decay};
      for (const at::Tensor& moment : moments) span.moments.push_back(gather(moment));
      part.spans = {span};
      visitor(part);
      ScatterKept(piece.selection, span.parameters.const_data_ptr<float>(), parameters.data_ptr<float>());
      for (size_t m = 0; m < moments.size(); ++m) {
        ScatterKept(piece.selection, span.moments[m].const_data_ptr<float>(), moments[m].data_ptr<float>());
      }
      continue;
    }
    if (piece.kept == elements) {
      part.spans = {StateSpan{parameters, kept, moments, piece.place.decay}};
      visitor(part);
      continue;
    }
    if (!scratch.defined()) scratch = at::empty({std::min(kSpreadElements, largest_)}, at::kFloat);
    KeptReader reader(&piece.selection, kept.const_data_ptr<float>());
    for (int64_t begin = 0; begin < elements; begin += kSpreadElements) {
      const int64_t count = std::min(kSpreadElements, elements - begin);
      reader.Spread(count, scratch.data_ptr<float>());
      StateSpan span{parameters.narrow(0, begin, count), scratch.narrow(0, 0, count), {}, piece.place.decay};
      for (const at::Tensor& moment : moments) span.moments.push_back(moment.narrow(0, begin, count));
      part.spans = {std::move(span)};
      visitor(part);
    }
  }
}

uint32_t DroppingReducer::SelectionCheck() const {
  uint32_t check = 0;
  for (size_t position = 0; position < groups_.size(); ++position) {
    const UnitGroup& group = store_->groups()[store_->held()[position].group];
    uint64_t hash = 0;
    for (const Piece& piece : pieces_) {
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

double DroppingReducer::kept_ratio() const {
  int64_t kept = 0, elements = 0;
  for (const Piece& piece : pieces_) {
    kept += piece.kept;
    elements += piece.place.elements;
  }
  return elements > 0 ? static_cast<double>(kept) / static_cast<double>(elements) : 1;
}

}  // namespace tessera::worker
