#include "worker/train/trainer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "worker/checkpoint/agreement.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/initial_weights.h"
#include "worker/checkpoint/residual_state.h"
#include "worker/comm/catch_torch.h"
#include "worker/device/placed_batch.h"
#include "worker/nn/autocast.h"
#include "worker/profile/memory_counter.h"
#include "worker/train/holder_checksum.h"

namespace tessera::worker {
namespace {

double Seconds() { return static_cast<double>(absl::GetCurrentTimeNanos()) * 1e-9; }

}  // namespace

Trainer::Trainer(const TrainerOptions& options, const TrainerContext& context)
    : options_(options),
      context_(context),
      sampler_(context.train->samples(), options.seed, options.end_of_data) {
  if (options_.shares.empty()) options_.shares.assign(context.world->all().size(), options_.batch);
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const TrainerOptions& options,
                                                         const TrainerContext& context) {
  if (context.train->samples() < 1) return absl::InvalidArgumentError("spec.data.train: holds no sample");
  if (context.plan->workers() != context.world->all().size()) {
    return absl::FailedPreconditionError(absl::StrCat("the plan is for ", context.plan->workers(),
                                                      " workers, there are ", context.world->all().size()));
  }
  if (!options.shares.empty() && static_cast<int>(options.shares.size()) != context.plan->workers()) {
    return absl::InvalidArgumentError(absl::StrCat("shares of the data for ", options.shares.size(), " of ",
                                                   context.plan->workers(), " workers"));
  }
  auto trainer = std::unique_ptr<Trainer>(new Trainer(options, context));
  TESSERA_RETURN_IF_ERROR(CatchTorch([&] { return trainer->Load(); }));
  return trainer;
}

absl::Status Trainer::Load() {
  // All ranks meet before anything that may take them differently long.
  TESSERA_ASSIGN_OR_RETURN(optimizer_, MakeOptimizer(options_.optimizer));
  options_.store.moments = optimizer_->moments();
  if (context_.gpu != nullptr) options_.store.device = at::Device(at::kCUDA);
  if (options_.dropping.has_value() && context_.gpu != nullptr) {
    options_.dropping->device = &context_.gpu->kept();
    options_.dropping->fused = options_.optimizer.name == "adamw";
  }
  options_.runner.seed = options_.seed;
  generation_ = context_.signals->plan_generation;
  const int rank = context_.world->all().rank();
  TESSERA_RETURN_IF_ERROR(
      ConnectHolders(*context_.plan, rank, context_.world, /*weights=*/options_.store.sharded));
  if (!options_.resume_from.empty() && options_.masks.every > 0) SetMasksOf(options_.resume_from);
  context_.reports->OnPhase(TrainerPhase::kLoading, 0);
  TESSERA_ASSIGN_OR_RETURN(store_, UnitStore::Create(*context_.model, masks(), rank, options_.store));
  TESSERA_ASSIGN_OR_RETURN(fetcher_, WeightFetcher::Create(store_.get(), context_.world));
  if (!options_.resume_from.empty()) {
    TESSERA_RETURN_IF_ERROR(Resume());
  } else {
    store_->Initialize(options_.seed);
    if (!options_.initial_weights.empty()) {
      TESSERA_RETURN_IF_ERROR(LoadInitialWeights(options_.initial_weights, store_.get()));
    }
  }
  if (!options_.checkpoint_directory.empty()) {
    writer_ = std::make_unique<CheckpointWriter>(options_.checkpoint_directory, options_.retention,
                                                 &context_.world->all());
  }
  generation_since_ = step_ + 1;
  // A resumed run measures at once what it may have been interrupted before.
  if (options_.statistics_step > 0) statistics_step_ = std::max(options_.statistics_step, step_ + 1);
  TESSERA_RETURN_IF_ERROR(MakeReducer());
  return fetcher_->Publish();
}

absl::Status Trainer::Resume() {
  TESSERA_ASSIGN_OR_RETURN(const Resumed resumed, ResumeFrom(options_.resume_from, options_.allow_previous,
                                                             store_.get(), context_.world->all()));
  step_ = resumed.info.step;
  tokens_ = resumed.info.tokens;
  samples_ = resumed.info.samples;
  checkpoint_ = resumed.checkpoint;
  checkpoint_step_ = step_;
  if (options_.dropping.has_value() && options_.dropping->residual != ResidualKeep::kNone) {
    const auto type = options_.dropping->residual == ResidualKeep::kBf16 ? at::kBFloat16 : at::kFloat;
    auto residual = LoadResidual(checkpoint_, *store_, type);
    TESSERA_RETURN_IF_ERROR(ShareVerdict(residual.status(), context_.world->all()));
    residual_ = ToDevice(*residual, options_.store.device);
  }
  context_.reports->OnResumed(step_, resumed.checkpoint, resumed.passed_over);
  return absl::OkStatus();
}

absl::StatusOr<TrainingResult> Trainer::Run() {
  return CatchTorch([&]() -> absl::StatusOr<TrainingResult> { return RunLoop(); });
}

absl::StatusOr<TrainingResult> Trainer::RunLoop() {
  TrainingResult result;
  if (step_ == 0) TESSERA_RETURN_IF_ERROR(Evaluate());
  context_.reports->OnPhase(TrainerPhase::kTraining, step_);
  bool end_of_data = false;
  while (step_ < options_.schedule.total_steps && !result.stopped && !end_of_data) {
    TESSERA_ASSIGN_OR_RETURN(const Agreement agreed, Step());
    Report(agreed);
    result.loss = agreed.loss;
    result.stopped = agreed.fenced || (agreed.stop && step_ < options_.schedule.total_steps);
    end_of_data = agreed.end_of_data;
    if (agreed.fenced) writer_.reset();  // what is under way is not this run's to put in place
    if (result.stopped && agreed.checkpoint) TESSERA_RETURN_IF_ERROR(CheckpointNow());
    if (!result.stopped) TESSERA_RETURN_IF_ERROR(AfterStep(agreed));
  }
  if (!result.stopped) {
    TESSERA_RETURN_IF_ERROR(CompareHolders(*store_, context_.world->all()));
    TESSERA_RETURN_IF_ERROR(Evaluate());
    TESSERA_RETURN_IF_ERROR(CheckpointNow());
  }
  result.step = step_;
  result.tokens = tokens_;
  result.validation_loss = validation_loss_;
  result.checkpoint = checkpoint_;
  return result;
}

// A step that did not fit some rank's memory is done once more, on all, after they have given back what their
// allocators keep: nothing of it is in weights or moments. Not where peers would wait for weights that a rank
// has not come to send, or a residual has changed: there it ends the worker at once.
bool Trainer::MayRepeat() const {
  return !options_.store.sharded && !options_.store.streamed && pieces_ == nullptr && !repeats_;
}

absl::StatusOr<Agreement> Trainer::Step() {
  TESSERA_ASSIGN_OR_RETURN(Agreement agreed, TryStep());
  if (agreed.short_rank < 0) return agreed;
  if (!shortage_.ok()) {
    spdlog::warn("event=step_repeated rank={} step={} error=\"{}\"", store_->rank(), step_ + 1,
                 std::string(shortage_.message()));
    context_.reports->OnMemoryShortage(step_ + 1, std::string(shortage_.message()));
  }
  // A backward pass that was left may have left a gradient behind.
  for (const at::Tensor& leaf : store_->leaves()) {
    if (leaf.defined()) leaf.mutable_grad().reset();
  }
  if (context_.gpu != nullptr) context_.gpu->EmptyCache();
  repeats_ = true;
  absl::StatusOr<Agreement> again = TryStep();
  repeats_ = false;
  return again;
}

absl::StatusOr<Agreement> Trainer::TryStep() {
  shortage_ = absl::OkStatus();
  return CatchTorch([&]() -> absl::StatusOr<Agreement> {
    const double start = Seconds();
    const int64_t sent = context_.world->bytes_sent();
    if (plan::MaskPeriod(options_.masks, step_) != period_) TESSERA_RETURN_IF_ERROR(Resample());
    if (options_.dropping.has_value() && pieces_ == nullptr && step_ >= options_.dropping_first_step) {
      TESSERA_RETURN_IF_ERROR(MakeReducer());
    }
    const double learning_rate = LearningRate(options_.schedule, step_);
    StepRecord own;
    TESSERA_ASSIGN_OR_RETURN(own.loss_sum, RunMicroSteps());
    const double computed = computed_at_;
    own.squared_norm = reducer_->OwnedSquaredNorm();
    own.tokens = static_cast<double>(own_tokens_);
    own.end_of_data = sampler_.EndsWith(step_, options_.accumulation, options_.shares) ? 1 : 0;
    own.plan_generation = static_cast<double>(context_.signals->plan_generation.load());
    // In this order: whoever sets them ends with `stop`. A wish that comes later is the next step's.
    own.wants_stop = context_.signals->stop ? 1 : 0;
    own.fenced = context_.signals->fenced ? 1 : 0;
    const bool wished = context_.signals->checkpoint.exchange(false) || retry_step_ == step_;
    own.wants_checkpoint = wished || own.wants_stop != 0 ? 1 : 0;
    own.checkpoint_written = writer_ != nullptr && writer_->active() && writer_->written() ? 1 : 0;
    own.compute_seconds = computed - start;
    own.selection = reducer_->SelectionCheck();
    // All measure in the same step, so that the scheduler gets one picture.
    own.wants_statistics =
        context_.signals->statistics.exchange(false) || std::exchange(drifted_, false) ? 1 : 0;
    own.out_of_memory = shortage_.ok() ? 0 : 1;
    TESSERA_ASSIGN_OR_RETURN(const std::vector<StepRecord> records,
                             GatherRecords(own, context_.world->all()));
    const double agreed_at = Seconds();
    Agreement agreed = Agree(records, options_.clip_norm);
    if (agreed.short_rank >= 0) {  // the wishes stand
      if (wished) context_.signals->checkpoint = true;
      if (own.wants_statistics != 0) context_.signals->statistics = true;
      return agreed;
    }
    NoteLayers(agreed.statistics);
    TESSERA_RETURN_IF_ERROR(Update(agreed, learning_rate));
    ++step_;
    tokens_ += agreed.tokens;
    samples_ +=
        options_.accumulation * std::accumulate(options_.shares.begin(), options_.shares.end(), int64_t{0});
    if (agreed.same_generation && agreed.plan_generation > generation_) {
      TESSERA_RETURN_IF_ERROR(AdoptPlan(agreed.plan_generation));
    }

    timing_.learning_rate = learning_rate;
    timing_.compute_seconds = computed - start;
    timing_.sync_seconds = agreed_at - computed;
    timing_.step_seconds = Seconds() - start;
    timing_.dropping_seconds = pieces_ != nullptr ? pieces_->TakeSeconds() : 0;
    timing_.traffic_bytes = context_.world->bytes_sent() - sent;
    return agreed;
  });
}

absl::StatusOr<double> Trainer::RunMicroSteps() {
  const auto& all = context_.world->all();
  double loss_sum = 0;
  own_tokens_ = 0;
  for (int micro = 0; micro < options_.accumulation; ++micro) {
    const std::vector<Sample> samples =
        sampler_.MicroBatch(step_, micro, options_.accumulation, all.rank(), options_.shares);
    Batch batch;
    if (!samples.empty()) {
      TESSERA_ASSIGN_OR_RETURN(batch, context_.train->Read(samples));
    } else if (options_.store.sharded || options_.store.streamed) {
      // Out of data before its peers, who still need it in every pass: it runs one without targets.
      const std::vector<Sample> any(1);
      TESSERA_ASSIGN_OR_RETURN(batch, context_.train->Read(any));
      batch.targets.fill_(kIgnoredTarget);
      batch.target_count = 0;
    }
    own_tokens_ += batch.target_count;
    reducer_->BeginMicroStep(micro == 0, micro == options_.accumulation - 1, batch.target_count);
    const int64_t draw = (step_ * options_.accumulation + micro) * all.size() + all.rank();
    if (batch.targets.defined() && shortage_.ok()) {
      batch = ToDevice(std::move(batch), options_.store.device);
      const absl::StatusOr<double> loss =
          CatchTorch([&] { return RunPass(batch, static_cast<uint64_t>(draw)); });
      if (loss.ok()) {
        loss_sum += *loss;
      } else if (absl::IsResourceExhausted(loss.status()) && MayRepeat()) {
        shortage_ = loss.status();  // peers wait for this rank's part in the sums all the same
      } else {
        return loss.status();
      }
    }
    computed_at_ = Seconds();
    TESSERA_RETURN_IF_ERROR(reducer_->EndMicroStep());
  }
  return loss_sum;
}

absl::StatusOr<double> Trainer::RunPass(const Batch& batch, uint64_t draw) {
  TrainingRunner runner(*store_, fetcher_.get(), reducer_.get(), options_.runner, draw);
  TESSERA_RETURN_IF_ERROR(runner.Begin());
  try {
    at::Tensor loss;
    {
      const Autocast autocast(options_.bf16);
      loss = context_.model->Loss(runner.weights(), batch, runner);
    }
    TESSERA_RETURN_IF_ERROR(runner.status());
    if (writer_ != nullptr && pieces_ != nullptr) writer_->BeforeBackward();
    loss.backward();
    runner.End();
    return loss.item<double>();
  } catch (const std::exception&) {
    TESSERA_RETURN_IF_ERROR(runner.status());  // thrown to leave the backward pass
    throw;
  }
}

absl::Status Trainer::Update(const Agreement& agreed, double learning_rate) {
  if (!agreed.same_selection) {
    return absl::InternalError(
        absl::StrCat("step ", step_ + 1,
                     ": the holders of a unit have selected different "
                     "gradient elements; their states differ, resume from a checkpoint"));
  }
  if (!std::isfinite(agreed.gradient_norm) || !std::isfinite(agreed.loss)) {
    return absl::InternalError(absl::StrCat("loss (", agreed.loss, ") or gradient norm (",
                                            agreed.gradient_norm, ") of step ", step_ + 1,
                                            " is not finite; a lower spec.optimizer.learning_rate may help"));
  }
  for (size_t i = 0; i < store_->held().size(); ++i) {
    const GroupState& state = store_->held()[i];
    for (int unit : store_->groups()[state.group].units) {
      if (writer_ != nullptr) writer_->BeforeUpdate(unit);
    }
    const double divisor = reducer_->divisor(static_cast<int>(i)) / agreed.clip_factor;
    reducer_->Visit(static_cast<int>(i),
                    [&](GroupState& part) { optimizer_->Step(part, step_ + 1, learning_rate, divisor); });
  }
  return fetcher_->Publish();
}

void Trainer::Report(const Agreement& agreed) {
  StepReport report = timing_;
  report.step = step_;
  report.total_steps = options_.schedule.total_steps;
  report.loss = agreed.loss;
  report.step_tokens = agreed.tokens;
  report.tokens = tokens_;
  report.gradient_norm = agreed.gradient_norm;
  report.plan_generation = generation_;
  report.plan_since = generation_since_;
  report.slowest_rank = agreed.slowest_rank;
  report.gradient_kept_ratio = reducer_->kept_ratio();
  report.memory_used_bytes = LiveTensorBytes();
  report.memory_peak_bytes = PeakTensorBytes();
  if (context_.gpu != nullptr) {
    const GpuMemory memory = context_.gpu->Memory(/*blocks=*/false);
    report.memory_used_bytes = memory.allocated;
    report.memory_peak_bytes = memory.peak;
  }
  report.resident_bytes = ResidentBytes();
  context_.reports->OnStep(report);
}

}  // namespace tessera::worker
