// Gradient budgets that are divided anew while a job trains: from the workers' statistics, on request, or
// back to those before when the loss became worse.
#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "scheduler/controller/controller_loop.h"
#include "scheduler/controller/plan_maker.h"
#include "scheduler/controller/proto_time.h"
#include "scheduler/wire/plan_wire.h"
#include "scheduler/wire/worker_shares.h"

namespace tessera::scheduler {
namespace {

using Reports = std::map<int, v1::LayerStatistics>;

// Sums of what the owners have measured. FailedPrecondition if some elements were not.
absl::StatusOr<std::vector<wire::LayerMeasure>> MeasuresOf(const plan::ModelShape& shape,
                                                           const Reports& reports) {
  std::vector<wire::LayerMeasure> measures(shape.parameters.size());
  std::vector<int64_t> elements(shape.parameters.size(), 0);
  for (const auto& [rank, report] : reports) {
    for (const v1::LayerStatistic& layer : report.layers()) {
      if (layer.parameter() < 0 || layer.parameter() >= static_cast<int>(measures.size())) {
        return absl::FailedPreconditionError(absl::StrCat("worker ", rank, " measured parameter ",
                                                          layer.parameter(), " of ", measures.size()));
      }
      wire::LayerMeasure& measure = measures[static_cast<size_t>(layer.parameter())];
      measure.root_second_moment += layer.root_second_moment();
      measure.spike = std::max(measure.spike, layer.spike());
      elements[static_cast<size_t>(layer.parameter())] += layer.elements();
    }
  }
  for (size_t p = 0; p < measures.size(); ++p) {
    if (elements[p] == shape.parameters[p].elements()) continue;
    return absl::FailedPreconditionError(absl::StrCat("the workers measured ", elements[p], " of the ",
                                                      shape.parameters[p].elements(), " elements of ",
                                                      shape.parameters[p].name));
  }
  return measures;
}

// `before` with the budgets that `round` wants: those of one of `plans`, or what its reports say.
absl::StatusOr<v1::Plan> WithBudgets(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec,
                                     const v1::Plan& before, const BudgetRound& round,
                                     const std::vector<v1::Plan>& plans) {
  if (round.budgets_of == 0) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<wire::LayerMeasure> measures,
                             MeasuresOf(shape, round.reports));
    return wire::Rebudget(shape, spec, before, measures);
  }
  const auto earlier = std::find_if(plans.begin(), plans.end(), [&](const v1::Plan& plan) {
    return plan.generation() == round.budgets_of;
  });
  if (earlier != plans.end()) return wire::WithBudgetsOf(shape, spec, before, *earlier);
  return absl::NotFoundError(absl::StrCat("plan ", round.budgets_of, " is not kept"));
}

// Of a plan with new budgets.
std::string ReasonOf(const BudgetRound& round, const std::string& change) {
  const std::string what = round.budgets_of != 0
                               ? absl::StrCat("back to the budgets of plan ", round.budgets_of, ": ")
                               : "gradient budgets ";
  return absl::StrCat(what, round.why, "; ", change);
}

}  // namespace

bool NoteStatistics(LiveJob& live, int rank, const v1::LayerStatistics& statistics) {
  BudgetRound& round = live.budgets;
  if (live.plan.dropping().kept_size() == 0) return false;
  round.reports[rank] = statistics;
  if (round.reports.size() < live.workers.size() || !round.trigger.empty()) return false;
  // Budgets that somebody or a regression went back to stay until somebody wants others.
  if (!round.asked && live.plan.dropping().budgets_of() != 0) {
    round.reports.clear();
    return false;
  }
  round.trigger = round.asked ? "request" : "statistics";
  round.why =
      absl::StrCat(round.asked ? "asked for" : "recomputed", ", from statistics of step ", statistics.step());
  round.asked = false;
  return true;
}

BudgetNews NoteBudgetProgress(LiveJob& live, int rank, const v1::Progress& progress) {
  BudgetNews news;
  BudgetRound& round = live.budgets;
  if (live.plan.dropping().kept_size() == 0) return news;
  if (rank == 0 && progress.step() > 0) round.loss.Note(progress.step(), progress.loss());
  if (round.proposed != 0) {
    for (const v1::WorkerStatus& worker : live.status().workers()) {
      if (worker.plan_generation() < round.proposed) return news;
    }
    news.generation = std::exchange(round.proposed, 0);
    news.step = progress.plan_since();
    round.loss.Change(news.step - 1);
    return news;
  }
  news.change = round.loss.Verdict();
  return news;
}

DownMessage PlanMessage(const LiveJob& live) {
  v1::WorkerDown down;
  *down.mutable_plan() = live.plan;
  down.mutable_plan()->set_epoch(live.status().epoch());
  return ToAll(down);
}

void ControllerLoop::SendPlan(const LiveJob& live, int rank, const DownMessage& message) {
  const auto& sink = live.workers[static_cast<size_t>(rank)].sink;
  if (sink == nullptr) return;  // sent when it is back
  outbox_.push_back([sink, message] { sink->Send(message); });
}

void ControllerLoop::FollowBudgets(LiveJob& live, int rank, const v1::Progress& progress, absl::Time now) {
  const BudgetNews news = NoteBudgetProgress(live, rank, progress);
  if (news.generation != 0) {
    const absl::Duration lag = now - live.budgets.proposed_at;
    if (metrics_ != nullptr) metrics_->PlanApplied(lag);
    Event(live, false, "BudgetsInForce",
          absl::StrFormat("plan %d is in force on all workers from step %d, %.1f s after it was published",
                          news.generation, news.step, absl::ToDoubleSeconds(lag)),
          now);
  }
  if (!news.change.has_value()) return;
  const std::string numbers = absl::StrFormat(
      "mean loss over %d steps %.4f before and %.4f after plan %d, which is %s by more than %.4f",
      plan::LossRegression::kWindow, news.change->before, news.change->after, live.plan.generation(),
      news.change->worse() ? "worse" : "not worse", news.change->bound);
  Event(live, news.change->worse(), news.change->worse() ? "BudgetsWorse" : "BudgetsJudged", numbers, now);
  if (!news.change->worse() || live.plan.dropping().budgets_of() != 0 || live.plan.generation() < 2) return;
  live.budgets.trigger = "regression";
  live.budgets.budgets_of = live.plan.generation() - 1;
  live.budgets.why = numbers;
  Wake();
}

void ControllerLoop::StartBudgets() {
  std::string due;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [uid, live] : jobs_.awake()) {
      if (!live->budgets.trigger.empty()) due = uid;
    }
  }
  if (due.empty() || planning_.exchange(true)) return;
  if (planner_.joinable()) planner_.join();
  planner_ = std::thread([this, due] {
    MakeBudgets(due);
    planning_ = false;
  });
}

void ControllerLoop::MakeBudgets(const std::string& uid) {
  v1::TrainingJobSpec spec;
  v1::Plan before;
  BudgetRound round;
  JobKey key;
  {
    absl::MutexLock lock(&mutex_);
    LiveJob* const found = jobs_.Find(uid);
    if (found == nullptr) return;
    LiveJob& live = *found;
    spec = live.group_spec();
    before = live.plan;
    key = live.key();
    round.trigger = std::exchange(live.budgets.trigger, "");
    round.why = live.budgets.why;
    round.budgets_of = std::exchange(live.budgets.budgets_of, 0);
    round.reports = std::exchange(live.budgets.reports, {});
  }
  const absl::StatusOr<v1::Plan> made = [&]() -> absl::StatusOr<v1::Plan> {
    TESSERA_ASSIGN_OR_RETURN(const v1::ModelShape description, describer_->Describe(spec));
    TESSERA_ASSIGN_OR_RETURN(const plan::ModelShape shape, wire::FromMessage(description));
    std::vector<v1::Plan> plans;
    if (round.budgets_of != 0) {
      TESSERA_ASSIGN_OR_RETURN(plans, store_->Plans(key));
    }
    TESSERA_ASSIGN_OR_RETURN(v1::Plan next, WithBudgets(shape, spec, before, round, plans));
    next.set_generation(before.generation() + 1);
    next.set_reason(ReasonOf(round, wire::DescribeBudgetChange(shape, before, next)));
    return next;
  }();
  if (absl::IsCancelled(made.status())) return;  // the scheduler stops

  absl::MutexLock lock(&mutex_);
  const absl::Time now = Now();
  LiveJob* const found = jobs_.Find(uid);
  // Planned anew meanwhile, or with another epoch whose workers measure again.
  if (found == nullptr || found->plan.generation() != before.generation()) return;
  LiveJob& live = *found;
  std::string result = "failed";
  if (!made.ok()) {
    Event(live, true, "BudgetsNotChanged",
          absl::StrCat(round.why, "; plan ", before.generation(), " stays: ", made.status().message()), now);
  } else if (std::equal(made->dropping().kept().begin(), made->dropping().kept().end(),
                        before.dropping().kept().begin(), before.dropping().kept().end())) {
    result = "unchanged";
    Event(live, false, "BudgetsNotChanged",
          absl::StrCat(round.why, "; the budgets of plan ", before.generation(), " are already those"), now);
  } else {
    v1::Plan next = *made;
    SetTime(now, next.mutable_create_time());
    return PublishBudgets(live, std::move(next), round.trigger, now);
  }
  if (metrics_ != nullptr) metrics_->PlanRecomputed(round.trigger, result);
}

void ControllerLoop::KeepBudgets(const v1::TrainingJobSpec& spec, const v1::Plan& earlier, v1::Plan* plan) {
  const v1::DroppingPlan &from = earlier.dropping(), &to = plan->dropping();
  if (from.kept_size() == 0 || from.kept_size() != to.kept_size() || from.density() != to.density() ||
      from.worker_shares_size() > 0 || to.worker_shares_size() > 0) {
    return;
  }
  const absl::StatusOr<v1::ModelShape> description = describer_->Describe(spec);
  if (!description.ok()) return;
  const absl::StatusOr<plan::ModelShape> shape = wire::FromMessage(*description);
  if (!shape.ok()) return;
  absl::StatusOr<v1::Plan> kept = wire::WithBudgetsOf(*shape, spec, *plan, earlier);
  if (!kept.ok()) return;  // they do not fit any more: begins with those by size
  kept->mutable_dropping()->set_budgets_of(from.budgets_of());
  *plan = *std::move(kept);
}

void ControllerLoop::PublishBudgets(LiveJob& live, v1::Plan plan, const std::string& trigger,
                                    absl::Time now) {
  const bool enforced = Enforced(plan);
  std::string result = enforced ? "published" : "shadow";
  if (absl::Status status = store_->AddPlan(live.key(), plan); !status.ok()) {
    spdlog::error("event=plan_not_stored job={} error=\"{}\"", live.record.job.name(), status.ToString());
    result = "failed";
  } else {
    live.plan = std::move(plan);
    live.status().set_plan_generation(live.plan.generation());
    Event(live, false, enforced ? "BudgetsPublished" : "BudgetsShadowed",
          absl::StrCat("plan ", live.plan.generation(),
                       enforced ? ": " : " (computed, not applied): ", live.plan.reason()),
          now);
    const DownMessage message = PlanMessage(live);
    for (int rank = 0; rank < static_cast<int>(live.workers.size()) && enforced; ++rank) {
      if (rank < live.plan.workers_size()) {
        v1::WorkerStatus& worker = *live.status().mutable_workers(rank);
        worker.set_memory_predicted_bytes(live.plan.workers(rank).memory().peak());
        worker.set_traffic_predicted_bytes_per_step(live.plan.workers(rank).traffic_bytes_per_step());
      }
      SendPlan(live, rank, message);
    }
    if (enforced) live.budgets.proposed = live.plan.generation();
    live.budgets.proposed_at = now;
    live.Touch();
    Wake();
  }
  if (metrics_ != nullptr) metrics_->PlanRecomputed(trigger, result);
}

absl::StatusOr<v1::TrainingJob> ControllerLoop::RecomputeBudgets(const JobKey& key,
                                                                 const BudgetRequest& request) {
  absl::MutexLock lock(&mutex_);
  TESSERA_ASSIGN_OR_RETURN(LiveJob * live, FindChangeable(key, request.etag, "given other budgets"));
  if (live->plan.dropping().kept_size() == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "training job '", key.name, "' has no gradient budgets; submit it with spec.dropping.mode"));
  }
  const bool training = std::all_of(live->workers.begin(), live->workers.end(), [](const LiveWorker& worker) {
    return worker.sink != nullptr && worker.seen.step > 0;
  });
  if (!training) {
    return absl::FailedPreconditionError(
        absl::StrCat("not all workers of training job '", key.name, "' train; ask again when they do"));
  }
  if (request.budgets_of != 0) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<v1::Plan> plans, store_->Plans(key));
    if (std::none_of(plans.begin(), plans.end(),
                     [&](const v1::Plan& plan) { return plan.generation() == request.budgets_of; })) {
      return absl::NotFoundError(
          absl::StrCat("training job '", key.name, "' has no plan ", request.budgets_of));
    }
  }
  TESSERA_RETURN_IF_ERROR(wire::CheckLayerLimits(live->plan.dropping(), request.layer_limits));
  if (!request.layer_limits.empty()) {
    v1::DroppingSpec& dropping = *live->record.job.mutable_spec()->mutable_dropping();
    const v1::DroppingSpec before = dropping;
    dropping.mutable_layer_limits()->Assign(request.layer_limits.begin(), request.layer_limits.end());
    live->Touch();
    if (absl::Status status = Write(*live, Now()); !status.ok()) {
      dropping = before;
      return status;
    }
  }
  if (request.budgets_of != 0) {
    live->budgets.trigger = "request";
    live->budgets.budgets_of = request.budgets_of;
    live->budgets.why = "asked for";
  } else {
    live->budgets.asked = true;
    live->budgets.reports.clear();
    v1::WorkerDown down;
    down.mutable_statistics();
    const DownMessage message = ToAll(down);
    for (const LiveWorker& worker : live->workers) {
      outbox_.push_back([sink = worker.sink, message] { sink->Send(message); });
    }
  }
  Event(*live, false, "BudgetsRequested",
        request.budgets_of != 0
            ? absl::StrCat("those of plan ", request.budgets_of)
            : absl::StrCat("computed anew",
                           request.layer_limits.empty() ? "" : " within other limits of layers"),
        Now());
  Wake();
  return live->record.job;
}

}  // namespace tessera::scheduler
