// Elastic jobs: fewer workers where all can't be had, more where there is room again.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/controller/controller_loop.h"
#include "scheduler/controller/plan_maker.h"
#include "scheduler/controller/worker_offers.h"

namespace tessera::scheduler {

// One job at a time, by the thread that plans. A job that waits comes before one that could grow, and nothing
// grows while any waits.
void ControllerLoop::ResizeElastic(absl::Time now) {
  if (planning_) return;
  ElasticSearch search;
  {
    absl::MutexLock lock(&mutex_);
    LiveJob* chosen = nullptr;
    bool any_waits = false;
    for (const auto& [uid, live] : jobs_.awake()) {
      any_waits |= live->state() == job::JobState::kQueued;
      const v1::WorkersSpec& workers = live->record.job.spec().workers();
      if (!IsElastic(workers) || live->changes_size() || live->unsaved || !live->notes.planned) continue;
      if (live->status().cancel_requested() || now < live->sized_at + options_.elastic_patience) continue;
      const bool waits = live->state() == job::JobState::kQueued && workers.min() < live->worker_count() &&
                         now >= live->notes.queued_at + options_.elastic_patience;
      const bool could_grow = live->state() == job::JobState::kRunning &&
                              live->worker_count() < workers.max() &&
                              now >= live->first_step_at + options_.elastic_growth;
      if (waits || (could_grow && chosen == nullptr)) chosen = live;
      if (waits) break;
    }
    if (chosen == nullptr) return;
    const bool grows = chosen->state() != job::JobState::kQueued;
    if (grows && any_waits) return;
    chosen->sized_at = grows ? now + options_.elastic_growth : now;
    const v1::WorkersSpec& workers = chosen->record.job.spec().workers();
    search.uid = chosen->record.job.uid();
    search.spec = chosen->group_spec();
    search.earlier = chosen->plan;
    search.from = grows ? workers.max() : chosen->worker_count() - 1;
    search.to = grows ? chosen->worker_count() + 1 : workers.min();
    search.present = chosen->worker_count();
    planning_ = true;
  }
  if (planner_.joinable()) planner_.join();
  planner_ = std::thread([this, search = std::move(search)] {
    FindOtherSize(search);
    planning_ = false;
  });
}

void ControllerLoop::FindOtherSize(const ElasticSearch& search) {
  v1::TrainingJobSpec spec = search.spec;
  for (int workers = search.from; workers >= search.to; --workers) {
    spec.mutable_workers()->set_count(workers);
    absl::StatusOr<v1::Plan> plan = MakeJobPlan(spec, *describer_, options_, Now());
    if (absl::IsCancelled(plan.status())) return;  // the scheduler stops
    if (!plan.ok() || !CheckFits(*plan).ok()) continue;
    KeepBudgets(spec, search.earlier, &*plan);
    absl::MutexLock lock(&mutex_);
    LiveJob* const live = jobs_.Find(search.uid);
    const bool waits = search.from < search.present;
    if (live == nullptr || live->worker_count() != search.present || live->changes_size() ||
        live->state() != (waits ? job::JobState::kQueued : job::JobState::kRunning) ||
        live->plan.generation() != search.earlier.generation()) {
      return;  // overtaken by events
    }
    if (!WouldBeAdmitted(*live, ClaimOf(*plan, spec, options_), Now())) continue;
    if (waits) {
      Shrink(*live, *std::move(plan), Now());
    } else {
      Grow(*live, workers, Now());
    }
    return Wake();
  }
}

bool ControllerLoop::WouldBeAdmitted(const LiveJob& live, const job::Demand& demand, absl::Time now) const {
  std::vector<job::Claim> claims = Claims();
  std::map<std::string, job::NodeMemory> memory = MemoryOfNodes(options_);
  for (job::Claim& claim : claims) {
    if (claim.id != live.record.job.uid()) continue;
    for (const auto& [node, resident] : claim.resident) {  // what it has comes free when it stops
      if (const auto at = memory.find(node); at != memory.end() && at->second.available >= 0)
        at->second.available += resident;
    }
    claim.demand = demand;
    claim.resident.clear();
    claim.holds = false;
    claim.waits = true;
  }
  return job::Admit(claims, memory, now, GpuCount(options_))[live.record.job.uid()].admitted;
}

void ControllerLoop::Shrink(LiveJob& live, v1::Plan plan, absl::Time now) {
  plan.set_generation(live.plan.generation() + 1);
  plan.set_reason(absl::StrCat("resized from ", live.worker_count(), " to ", plan.workers_size(),
                               " workers, as more could not be had: ", live.status().message()));
  if (absl::Status status = store_->AddPlan(live.key(), plan); !status.ok()) {
    spdlog::error("event=plan_not_stored job={} error=\"{}\"", live.record.job.name(), status.ToString());
    return;
  }
  TakePlan(live, std::move(plan), now);
  live.unsaved = !Write(live, now).ok();
}

// The group stops at a checkpoint, and goes on with more workers.
void ControllerLoop::Grow(LiveJob& live, int workers, absl::Time now) {
  live.notes.grow_to = workers;
  Event(live, false, "Growing",
        absl::StrCat("there is room for ", workers, " workers instead of ", live.worker_count(),
                     ": the job stops at a checkpoint and goes on with them"),
        now);
  live.Touch();
  live.unsaved = !Write(live, now).ok();
}

}  // namespace tessera::scheduler
