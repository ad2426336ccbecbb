// What changes while a run goes on: masks, budgets of gradient dropping, and what is measured for them.
#include <spdlog/spdlog.h>
#include <torch/types.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "worker/checkpoint/manifest.h"
#include "worker/dropping/residual_mover.h"
#include "worker/parallel/state_mover.h"
#include "worker/train/holder_checksum.h"
#include "worker/train/trainer.h"

namespace tessera::worker {
namespace {

constexpr int64_t kDriftInterval = 20;  // steps between looks at how far layers have drifted

// All ranks are to change to the same masks: exchanges that do not fit each other would wait for ever.
absl::Status CompareMasks(const plan::MaskPlan& masks, Communicator& all) {
  const at::Tensor own = at::full({1}, static_cast<int64_t>(masks.Fingerprint()), at::kLong);
  at::Tensor everybodys = at::empty({all.size()}, at::kLong);
  TESSERA_RETURN_IF_ERROR(all.AllGather(own, everybodys));
  const int64_t* values = everybodys.const_data_ptr<int64_t>();
  for (int rank = 1; rank < all.size(); ++rank) {
    if (values[rank] == values[0]) continue;
    return absl::InternalError(absl::StrCat(
        "rank ", rank, " has drawn other masks than rank 0; all workers must be of one version"));
  }
  return absl::OkStatus();
}

}  // namespace

// What was not sent stays; all else of the reducer before is freed first.
absl::Status Trainer::MakeReducer() {
  if (pieces_ != nullptr) residual_ = pieces_->residual();
  pieces_ = nullptr;
  reducer_.reset();
  const bool drops = options_.dropping.has_value() && step_ >= options_.dropping_first_step;
  if (!drops) {
    TESSERA_ASSIGN_OR_RETURN(reducer_,
                             GradientReducer::Create(store_.get(), context_.world, options_.reducer));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(DroppingReducer dropping,
                           MakeDroppingReducer(store_.get(), context_.world, options_.reducer,
                                               *options_.dropping, step_, std::exchange(residual_, {})));
  pieces_ = dropping.pieces;
  reducer_ = std::move(dropping.reducer);
  context_.reports->OnBudgets(step_, options_.dropping->kept);
  return absl::OkStatus();
}

// After the step in which every rank said that it holds the generation, so on all of them at the same one.
absl::Status Trainer::AdoptPlan(int64_t generation) {
  generation_ = generation;
  generation_since_ = step_ + 1;
  std::optional<std::vector<int64_t>> kept = context_.signals->budgets.Take(generation);
  if (!kept.has_value() || !options_.dropping.has_value()) return absl::OkStatus();
  options_.dropping->kept = *std::move(kept);
  return pieces_ != nullptr ? MakeReducer() : absl::OkStatus();
}

void Trainer::NoteLayers(bool asked) {
  const int64_t step = step_ + 1;
  if (statistics_step_ > 0 && step > statistics_step_) {
    statistics_step_ = options_.statistics_interval > 0 ? statistics_step_ + options_.statistics_interval : 0;
  }
  const bool near = statistics_step_ > 0 && step > statistics_step_ - LayerStatistics::kWindow;
  const bool look = options_.drift > 0 && statistics_ != nullptr && step % kDriftInterval == 0;
  if (!asked && !near && !look) return;
  if (statistics_ == nullptr) statistics_ = std::make_unique<LayerStatistics>(store_.get());
  statistics_->Note(*reducer_);
  if (asked || step == statistics_step_) {
    context_.reports->OnStatistics(step, generation_, statistics_->Measure());
  } else if (look) {
    drifted_ = statistics_->Drift() > options_.drift;
  }
}

// Of the step at which a resumed run goes on, so that it loads what it will hold. What can't be read here is
// told by Resume; if that takes an earlier checkpoint, its states move at the first step.
void Trainer::SetMasksOf(const std::string& checkpoint) {
  const absl::StatusOr<Manifest> manifest = ReadManifest(checkpoint);
  if (!manifest.ok()) return;
  period_ = plan::MaskPeriod(options_.masks, manifest->info.step);
  masks_ = std::make_unique<plan::MaskPlan>(
      plan::MasksOfPeriod(context_.model->shape(), *context_.plan, options_.masks.seed, period_));
}

// Between two steps, on all ranks: the units that trade holders go to their new ones.
absl::Status Trainer::Resample() {
  const absl::Time start = absl::Now();
  const int64_t sent = context_.world->bytes_sent();
  if (writer_ != nullptr && writer_->active()) {
    TESSERA_RETURN_IF_ERROR(OutliveCheckpoint(FinishCheckpoint(), checkpoint_wished_));
  }
  period_ = plan::MaskPeriod(options_.masks, step_);
  auto next = std::make_unique<plan::MaskPlan>(
      plan::MasksOfPeriod(context_.model->shape(), *context_.plan, options_.masks.seed, period_));
  TESSERA_RETURN_IF_ERROR(CompareMasks(*next, context_.world->all()));
  statistics_.reset();
  if (pieces_ != nullptr) residual_ = pieces_->residual();
  pieces_ = nullptr;
  reducer_.reset();
  fetcher_.reset();
  if (residual_.defined()) {
    TESSERA_ASSIGN_OR_RETURN(residual_, MoveResidual(context_.model->shape(), masks(), *next,
                                                     std::exchange(residual_, {}), context_.world->all()));
  }
  TESSERA_ASSIGN_OR_RETURN(store_, MoveStates(std::move(store_), *next, context_.world->all()));
  masks_ = std::move(next);
  TESSERA_ASSIGN_OR_RETURN(fetcher_, WeightFetcher::Create(store_.get(), context_.world));
  TESSERA_RETURN_IF_ERROR(CompareHolders(*store_, context_.world->all()));
  TESSERA_RETURN_IF_ERROR(MakeReducer());
  if (store_->rank() == 0) {
    spdlog::info("event=resampled step={} period={} sent_bytes={} seconds={:.3f}", step_, period_,
                 context_.world->bytes_sent() - sent, absl::ToDoubleSeconds(absl::Now() - start));
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
