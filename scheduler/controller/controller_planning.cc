// Plans of jobs that were stored without one, or whose plan no longer holds.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/controller/controller_loop.h"
#include "scheduler/controller/plan_maker.h"

namespace tessera::scheduler {
namespace {

// What memory ran out with: of unlike workers the limit of the one it happened to, else of all.
void LowerLimit(int64_t usable, int rank, v1::TrainingJobSpec* spec) {
  v1::ResourcesSpec& resources = *spec->mutable_resources();
  const auto lower = [usable](auto& holder) {
    const int64_t limit = holder.memory_limit_bytes();
    holder.set_memory_limit_bytes(limit > 0 ? std::min(limit, usable) : usable);
  };
  if (rank >= 0 && rank < resources.per_worker_size()) return lower(*resources.mutable_per_worker(rank));
  lower(resources);
}

}  // namespace

void ControllerLoop::PerformPlan(const std::string& uid) {
  if (planning_.exchange(true)) return;  // asked for again
  if (planner_.joinable()) planner_.join();
  v1::TrainingJobSpec spec;
  v1::Plan earlier;
  std::string reason;  // that memory ran out
  {
    absl::MutexLock lock(&mutex_);
    const LiveJob* live = jobs_.Find(uid);
    // Asked for before the last answer was in.
    if (live == nullptr || live->notes.planned || !live->plan_error.empty()) {
      planning_ = false;
      return;
    }
    spec = live->group_spec();
    earlier = live->plan;
    if (const int64_t usable = live->notes.usable_bytes; usable > 0) {
      reason = live->notes.failure;
      LowerLimit(usable, live->notes.usable_rank, &spec);
    }
    if (!live->replan_reason.empty()) reason = live->replan_reason;
  }
  planner_ = std::thread([this, uid, spec, earlier, reason] {
    PlanAgain(uid, spec, earlier, reason);
    planning_ = false;
  });
}

void ControllerLoop::PlanAgain(const std::string& uid, const v1::TrainingJobSpec& spec,
                               const v1::Plan& earlier, const std::string& reason) {
  absl::StatusOr<v1::Plan> plan = MakeElasticPlan(spec, *describer_, options_, Now());
  if (plan.ok()) {
    v1::TrainingJobSpec planned = spec;
    planned.mutable_workers()->set_count(plan->workers_size());
    KeepBudgets(planned, earlier, &*plan);
  }
  absl::Status status = plan.status();
  if (absl::IsCancelled(status)) return;  // the scheduler stops
  if (status.ok()) status = CheckFits(*plan);
  const bool final = CanNeverWork(status) || absl::IsResourceExhausted(status);
  absl::MutexLock lock(&mutex_);
  LiveJob* const found = jobs_.Find(uid);
  if (found == nullptr) return;
  LiveJob& live = *found;
  if (spec.workers().count() != live.worker_count()) return Wake();  // resized meanwhile
  if (status.ok()) {
    const int before = live.plan.workers_size();
    const bool resized = before > 0 && before != plan->workers_size();
    if (resized) {
      plan->set_reason(absl::StrCat("resized from ", before, " to ", plan->workers_size(), " workers"));
    } else if (!reason.empty()) {
      plan->set_reason(reason);
    }
    plan->set_generation(live.plan.generation() + 1);
    status = store_->AddPlan(live.key(), *plan);
  }
  Wake();
  if (!status.ok() && !live.replan_reason.empty()) return KeepPlanOfSilentNode(live, status);
  live.replan_reason.clear();
  if (!status.ok()) {
    spdlog::error("event=plan_failed job={} error=\"{}\"", live.record.job.name(), status.ToString());
    live.plan_error = absl::StrCat("the job could not be planned: ", status.message());
    live.plan_error_final = final;
    return;
  }
  if (!reason.empty()) {
    const bool now_checkpointed = plan->activation_checkpointing() == v1::ACTIVATION_CHECKPOINTING_ALWAYS &&
                                  live.plan.activation_checkpointing() != v1::ACTIVATION_CHECKPOINTING_ALWAYS;
    const std::string changed =
        absl::StrCat("plan ", live.plan.generation(), " gave way to plan ", plan->generation(), ": coverage ",
                     live.plan.inputs().coverage(), " became ", plan->inputs().coverage(),
                     now_checkpointed ? ", activations are checkpointed" : "", "; ", reason);
    live.status().add_notices(changed);
    Event(live, true, "Replanned", changed, Now());
  }
  TakePlan(live, *std::move(plan), Now());
}

// A stored plan becomes the one that the next group is started by.
void ControllerLoop::TakePlan(LiveJob& live, v1::Plan plan, absl::Time now) {
  live.plan = std::move(plan);
  live.notes.planned = true;
  const v1::TrainingJobSpec& spec = live.record.job.spec();
  if (const int workers = live.plan.workers_size();
      IsElastic(spec.workers()) && workers != live.worker_count()) {
    const std::string change = absl::StrCat(workers, " workers instead of ", live.worker_count());
    live.notes.workers = workers == spec.workers().count() ? 0 : workers;
    const std::string fewer = FewerWorkers(spec, live.plan);
    if (!fewer.empty()) live.status().add_notices(fewer);
    Event(live, !fewer.empty(), "Shrunk", fewer.empty() ? change : fewer, now);
  }
  live.claim = ClaimOf(live.plan, spec, options_);
  live.status().set_plan_generation(live.plan.generation());
  live.status().set_total_steps(live.plan.total_steps());
  ResetWorkers(live);
  live.Touch();
}

}  // namespace tessera::scheduler
