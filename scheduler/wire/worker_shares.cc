#include "scheduler/wire/worker_shares.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "scheduler/plan/worker_budgets.h"

namespace tessera::wire {
namespace {

constexpr double kFloorOfDensity = 0.25;  // what a worker contributes at least
constexpr double kWorthIt = 0.8;          // of the time that equal shares take

// With the bounds of the job.
absl::StatusOr<std::vector<plan::WorkerLink>> LinksOf(const v1::TrainingJobSpec& spec, const v1::Plan& plan) {
  std::vector<plan::WorkerLink> links(plan.workers_size());
  for (size_t w = 0; w < links.size(); ++w) {
    const auto index = static_cast<int>(w);
    if (index < plan.inputs().capacities_size()) {
      links[w].bytes_per_second = plan.inputs().capacities(index).bytes_per_second();
    }
  }
  for (const v1::DensityLimit& limit : spec.dropping().worker_limits()) {
    bool found = false;
    for (size_t w = 0; w < links.size(); ++w) {
      if (!Matches(limit.pattern(), absl::StrCat(w))) continue;
      found = true;
      if (limit.has_min()) links[w].floor = limit.min();
      if (limit.has_max()) links[w].ceiling = limit.max();
      if (!limit.has_min()) links[w].floor = std::min(links[w].floor, links[w].ceiling);
      if (!limit.has_max()) links[w].ceiling = std::max(links[w].floor, links[w].ceiling);
    }
    if (found) continue;
    return absl::InvalidArgumentError(absl::StrCat("spec.dropping.workerLimits: no worker is named '",
                                                   limit.pattern(), "'; they are named by rank, '0' to '",
                                                   links.size() - 1, "', and * stands for any characters"));
  }
  return links;
}

// The most that every worker's memory takes of the whole gradient, as a density.
double RoomFor(const plan::ModelShape& shape, const plan::MaskPlan& mask, const plan::StepShape& step,
               const plan::Dropping& costs, double density, int64_t limit) {
  double room = 1;
  for (int w = 0; limit > 0 && w < mask.workers(); ++w) {
    const plan::DroppedMemory dropped = plan::PredictDroppedMemory(shape, mask, w, step, costs);
    const auto ring = static_cast<double>(dropped.memory.gradients);
    const auto free = static_cast<double>(limit - dropped.memory.peak);
    if (ring > 0) room = std::min(room, density * std::max(0.0, ring + free) / ring);
  }
  return room;
}

}  // namespace

// '*' stands for any characters. Each part between stars is taken where it comes first, so that many stars
// cost no more than one.
bool Matches(absl::string_view pattern, absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(pattern, '*');
  if (parts.size() == 1) return pattern == name;
  if (!absl::ConsumePrefix(&name, parts.front()) || !absl::ConsumeSuffix(&name, parts.back())) return false;
  for (size_t part = 1; part + 1 < parts.size(); ++part) {
    const size_t at = name.find(parts[part]);
    if (at == absl::string_view::npos) return false;
    name.remove_prefix(at + parts[part].size());
  }
  return true;
}

double SlowestLink(const v1::TrainingJobSpec& spec, const v1::Plan& plan) {
  double slowest = 0;
  const auto note = [&](double link) {
    if (link > 0 && (slowest == 0 || link < slowest)) slowest = link;
  };
  for (const auto& capacity : plan.inputs().capacities()) note(capacity.bytes_per_second());
  for (const auto& worker : spec.resources().per_worker()) {
    note(static_cast<double>(worker.bandwidth_bytes_per_second()));
  }
  return slowest;
}

absl::StatusOr<WorkerShares> DivideWorkers(const plan::ModelShape& shape, const plan::MaskPlan& mask,
                                           const v1::TrainingJobSpec& spec, const plan::StepShape& step,
                                           const v1::Plan& plan, const plan::Dropping& costs, int64_t limit) {
  const double density = spec.dropping().density();
  WorkerShares result{.density = density};
  plan::WorkerBudgetRequest request;
  TESSERA_ASSIGN_OR_RETURN(request.workers, LinksOf(spec, plan));
  const bool bounded = spec.dropping().worker_limits_size() > 0;
  double slowest = 0, fastest = 0;
  for (const plan::WorkerLink& link : request.workers) {
    if (link.bytes_per_second <= 0) continue;
    slowest = slowest == 0 ? link.bytes_per_second : std::min(slowest, link.bytes_per_second);
    fastest = std::max(fastest, link.bytes_per_second);
  }
  // A sharded group's sums are scattered among all its holders at once.
  if (step.sharded || (!bounded && slowest == fastest)) return result;
  for (const v1::WorkerPlan& worker : plan.workers()) {
    request.elements = std::max(request.elements, worker.elements());
  }
  const auto n = static_cast<double>(mask.workers());
  request.density = density;
  request.floor = kFloorOfDensity * density;
  request.wire_bytes_per_element = 2 * (n - 1) / n * static_cast<double>(step.gradient_wire_bytes);
  const double room = RoomFor(shape, mask, step, costs, density, limit);
  for (plan::WorkerLink& link : request.workers) {
    link.usable_bytes =
        static_cast<int64_t>(room * static_cast<double>(request.elements)) * request.memory_bytes_per_element;
  }
  const absl::StatusOr<plan::WorkerBudgets> budgets = plan::DivideAmongWorkers(request);
  if (!budgets.ok()) {
    if (!bounded) return result;  // equal shares, which fit or not
    return absl::InvalidArgumentError(
        absl::StrCat("spec.dropping.workerLimits: ", budgets.status().message()));
  }
  const double equal =
      fastest > 0 ? density * static_cast<double>(request.elements) * request.wire_bytes_per_element / slowest
                  : 0;
  result.seconds = budgets->seconds;
  const int64_t most = *std::max_element(budgets->kept.begin(), budgets->kept.end());
  const int64_t least = *std::min_element(budgets->kept.begin(), budgets->kept.end());
  if (most == least || (!bounded && budgets->seconds > kWorthIt * equal)) {
    result.seconds = equal;
    return result;
  }
  result.density = static_cast<double>(most) / static_cast<double>(request.elements);
  for (const int64_t kept : budgets->kept) {
    result.shares.push_back(static_cast<double>(kept) / static_cast<double>(most));
  }
  result.reason = absl::StrFormat(
      "workers contribute %.3g to %.3g of the gradients%s",
      static_cast<double>(least) / static_cast<double>(request.elements), result.density,
      fastest > 0 ? absl::StrFormat(", so that the last has sent its share after %.3g s instead of %.3g",
                                    result.seconds, equal)
                  : std::string());
  return result;
}

}  // namespace tessera::wire
