#include "scheduler/plan/mask_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "scheduler/plan/fingerprint.h"
#include "scheduler/plan/holder_counts.h"
#include "scheduler/plan/load_shares.h"
#include "scheduler/plan/mask_graph.h"
#include "scheduler/plan/mask_scheme.h"
#include "scheduler/plan/units.h"

namespace tessera::plan {
namespace {

constexpr int kMostWorkers = 4096;

absl::Status CheckCapacities(const MaskRequest& request) {
  if (request.capacities.empty()) return absl::OkStatus();
  if (static_cast<int>(request.capacities.size()) != request.workers) {
    return absl::InvalidArgumentError(absl::StrCat("capacities: has ", request.capacities.size(),
                                                   " entries; must have one for each of ", request.workers,
                                                   " workers, or none"));
  }
  for (int w = 0; w < request.workers; ++w) {
    const WorkerCapacity& capacity = request.capacities[w];
    if (!(capacity.relative_speed > 0) || !std::isfinite(capacity.relative_speed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("capacities[", w, "].relative_speed: ", capacity.relative_speed, "; must be above 0"));
    }
    if (!(capacity.bytes_per_second >= 0) || !std::isfinite(capacity.bytes_per_second)) {
      return absl::InvalidArgumentError(absl::StrCat("capacities[", w,
                                                     "].bytes_per_second: ", capacity.bytes_per_second,
                                                     "; must be 0 (unknown) or more"));
    }
    if (capacity.usable_bytes < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "capacities[", w, "].usable_bytes: ", capacity.usable_bytes, "; must be 0 (unknown) or more"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const MaskRequest& request) {
  if (request.workers < 1 || request.workers > kMostWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers: ", request.workers, "; must be from 1 to ", kMostWorkers));
  }
  if (!(request.coverage > 0 && request.coverage <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("coverage: ", request.coverage, "; must be in (0, 1]"));
  }
  if (request.min_holders < 1 || request.min_holders > request.workers) {
    return absl::InvalidArgumentError(absl::StrCat("min_holders: ", request.min_holders,
                                                   "; must be from 1 to the number of workers, ",
                                                   request.workers));
  }
  if (!(request.min_gap >= 0 && request.min_gap <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("min_gap: ", request.min_gap, "; must be in [0, 1]"));
  }
  if (request.bytes_per_element < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes_per_element: ", request.bytes_per_element, "; must be at least 1"));
  }
  if (!request.samples.empty() && static_cast<int>(request.samples.size()) != request.workers) {
    return absl::InvalidArgumentError(absl::StrCat("samples: has ", request.samples.size(),
                                                   " entries; must have one for each of ", request.workers,
                                                   " workers, or none"));
  }
  for (int64_t samples : request.samples) {
    if (samples < 1)
      return absl::InvalidArgumentError(absl::StrCat("samples: ", samples, "; must be at least 1"));
  }
  if (!(request.tokens_per_sample >= 0) || !std::isfinite(request.tokens_per_sample)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens_per_sample: ", request.tokens_per_sample, "; must be 0 (unknown) or more"));
  }
  return CheckCapacities(request);
}

absl::Status CheckHolders(const MaskRequest& request) {
  const double mean = MeanHolders(request.coverage, request.workers);
  if (mean >= request.min_holders) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("coverage: ", request.coverage, " of ", request.workers,
                                                 " workers gives ", mean, " holders per unit, but ",
                                                 request.min_holders, " are needed; must be at least ",
                                                 static_cast<double>(request.min_holders) / request.workers));
}

// What the units cost a holder, in bytes.
absl::StatusOr<UnitCosts> CostsOf(const MaskRequest& request, const std::vector<Unit>& units) {
  UnitCosts costs = request.costs;
  size_t maskable = 0;
  for (const Unit& unit : units) maskable += unit.always_on ? 0 : 1;
  if (costs.units.empty()) {
    costs.always_on = 0;
    for (const Unit& unit : units) {
      const int64_t bytes = unit.elements * request.bytes_per_element;
      if (unit.always_on) {
        costs.always_on += bytes;
      } else {
        costs.units.push_back(bytes);
      }
    }
  }
  if (costs.units.size() != maskable) {
    return absl::InvalidArgumentError(absl::StrCat("costs: has ", costs.units.size(), " entries for ",
                                                   maskable, " maskable units; must have as many, or none"));
  }
  costs.units_per_sample.resize(maskable, 0);
  return costs;
}

std::vector<int64_t> SamplesOf(const MaskRequest& request) {
  return request.samples.empty() ? std::vector<int64_t>(request.workers, 1) : request.samples;
}

// Most maskable elements a worker has room for: those that cost least first.
int64_t MostElements(const UnitCosts& costs, const std::vector<int64_t>& elements, int64_t usable,
                     int64_t samples) {
  double per_element = std::numeric_limits<double>::infinity();
  int64_t all = 0;
  for (size_t u = 0; u < elements.size(); ++u) {
    all += elements[u];
    if (elements[u] == 0) continue;
    per_element =
        std::min(per_element, static_cast<double>(costs.units[u] + samples * costs.units_per_sample[u]) /
                                  static_cast<double>(elements[u]));
  }
  if (usable == 0 || per_element <= 0) return all;
  // A worker that cannot even hold the always-on part is named when the fit is checked.
  const double room = static_cast<double>(
      std::max<int64_t>(0, usable - costs.always_on - samples * costs.always_on_per_sample));
  return std::min(all, static_cast<int64_t>(room / per_element));
}

SchemeInput MakeSchemeInput(const MaskRequest& request, const std::vector<Unit>& units,
                            const UnitCosts& costs) {
  SchemeInput input{.workers = request.workers,
                    .coverage = request.coverage,
                    .min_holders = request.min_holders,
                    .costs = costs,
                    .capacities = request.capacities,
                    .flops_per_second = request.flops_per_second,
                    .samples = SamplesOf(request),
                    .tokens_per_sample = request.tokens_per_sample > 0 ? request.tokens_per_sample : 1,
                    .min_gap = request.min_gap,
                    .seed = request.seed};
  input.capacities.resize(request.workers);
  int64_t maskable_elements = 0;
  double flops = 0;
  for (const Unit& unit : units) {
    (unit.always_on ? input.always_on_elements : maskable_elements) += unit.elements;
    if (unit.always_on) input.always_on_flops += unit.flops_per_token;
    if (!unit.always_on) flops += unit.flops_per_token;
  }
  LoadQuestion question;
  for (const Unit& unit : units) {
    const double load = flops > 0 ? unit.flops_per_token : static_cast<double>(unit.elements);
    if (unit.always_on) {
      question.always_on += load;
      continue;
    }
    input.elements.push_back(unit.elements);
    input.loads.push_back(load);
    question.all_maskable += load;
  }
  input.holders = HolderCounts(request.coverage, request.workers, input.elements);
  for (int u = 0; u < input.units(); ++u) question.total += input.loads[u] * input.holders[u];
  for (int w = 0; w < request.workers; ++w) {
    const WorkerCapacity& capacity = input.capacities[w];
    input.limits.push_back(MostElements(costs, input.elements, capacity.usable_bytes, input.samples[w]));
    question.speeds.push_back(capacity.relative_speed);
    question.limits.push_back(question.all_maskable * static_cast<double>(input.limits[w]) /
                              static_cast<double>(std::max<int64_t>(1, maskable_elements)));
    input.equal_workers &= question.speeds[w] == question.speeds[0] && input.limits[w] == input.limits[0] &&
                           capacity.bytes_per_second == input.capacities[0].bytes_per_second;
  }
  input.shares = LoadShares(question);
  return input;
}

int64_t HeldBytes(const MaskPlan& plan, const UnitCosts& costs, int64_t samples, int worker) {
  int64_t bytes = costs.always_on + samples * costs.always_on_per_sample;
  size_t next = 0;
  for (size_t u = 0; u < plan.units().size(); ++u) {
    if (plan.units()[u].always_on) continue;
    const int64_t cost = costs.units[next] + samples * costs.units_per_sample[next];
    if (plan.Holds(worker, static_cast<int>(u))) bytes += cost;
    ++next;
  }
  return bytes;
}

absl::Status CheckFit(const MaskPlan& plan, const MaskRequest& request, const UnitCosts& costs) {
  const std::vector<int64_t> samples = SamplesOf(request);
  const auto held = [&](int w) { return HeldBytes(plan, costs, samples[w], w); };
  int worst = -1;
  int64_t most_missing = 0;
  for (int w = 0; w < plan.workers(); ++w) {
    const int64_t usable = request.capacities.empty() ? 0 : request.capacities[w].usable_bytes;
    if (usable == 0) continue;
    const int64_t missing = held(w) - usable;
    if (missing <= most_missing) continue;
    worst = w;
    most_missing = missing;
  }
  if (worst < 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("worker ", worst, " needs ", held(worst), " bytes for the units it holds, but has ",
                   request.capacities[worst].usable_bytes, ": ", most_missing, " bytes are missing"));
}

absl::Status CheckGap(const MaskPlan& plan, const MaskRequest& request, absl::string_view scheme) {
  if (request.min_gap <= 0) return absl::OkStatus();
  const double gap = AnalyseMaskGraph(plan).gap;
  if (gap >= request.min_gap - 1e-12) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("min_gap: scheme '", scheme, "' reaches a spectral gap of ",
                                                 gap, " with coverage ", request.coverage, " on ",
                                                 request.workers, " workers, below ", request.min_gap,
                                                 "; lower min_gap, raise coverage or try another scheme"));
}

}  // namespace

MaskPlan::MaskPlan(int workers, std::vector<Unit> units, std::vector<std::vector<int>> holders,
                   std::vector<Slice> slices)
    : workers_(workers), units_(std::move(units)), holders_(std::move(holders)), slices_(std::move(slices)) {
  TESSERA_CHECK(units_.size() == holders_.size());
}

bool MaskPlan::Holds(int worker, int unit) const {
  return std::binary_search(holders_[unit].begin(), holders_[unit].end(), worker);
}

double MaskPlan::Coverage(int worker) const {
  int64_t held = 0;
  int64_t maskable = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].always_on) continue;
    maskable += units_[u].elements;
    if (Holds(worker, static_cast<int>(u))) held += units_[u].elements;
  }
  return maskable == 0 ? 1.0 : static_cast<double>(held) / static_cast<double>(maskable);
}

double MaskPlan::ParameterShare(int worker) const {
  int64_t whole = 0;
  for (const Unit& unit : units_) whole += unit.elements;
  return whole == 0 ? 1.0 : static_cast<double>(Elements(worker)) / static_cast<double>(whole);
}

int64_t MaskPlan::Elements(int worker) const {
  int64_t held = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (Holds(worker, static_cast<int>(u))) held += units_[u].elements;
  }
  return held;
}

double MaskPlan::FlopsPerToken(int worker) const {
  double held = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (Holds(worker, static_cast<int>(u))) held += units_[u].flops_per_token;
  }
  return held;
}

double MaskPlan::HolderShare(int unit) const { return static_cast<double>(holders_[unit].size()) / workers_; }

bool MaskPlan::IsAlwaysOn(int block) const {
  return std::all_of(units_.begin(), units_.end(),
                     [&](const Unit& unit) { return unit.block != block || unit.always_on; });
}

double MaskPlan::BlockHolderShare(int block) const {
  double elements = 0;
  double held = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].block != block || units_[u].always_on) continue;
    elements += static_cast<double>(units_[u].elements);
    held += static_cast<double>(units_[u].elements) * HolderShare(static_cast<int>(u));
  }
  return elements > 0 ? held / elements : 1;
}

std::vector<std::vector<int>> MaskPlan::HolderSets() const {
  std::vector<std::vector<int>> sets;
  for (const std::vector<int>& holders : holders_) {
    if (holders.size() < 2 || std::find(sets.begin(), sets.end(), holders) != sets.end()) continue;
    sets.push_back(holders);
  }
  return sets;
}

uint64_t MaskPlan::Fingerprint() const {
  FingerprintBuilder builder;
  builder.Add(workers_).Add(static_cast<int64_t>(units_.size()));
  for (size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    builder.Add(unit.name).Add(unit.block).Add(static_cast<int>(unit.axis)).Add(unit.chunk);
    builder.Add(unit.always_on).Add(unit.elements);
    builder.Add(static_cast<int64_t>(holders_[u].size()));
    for (int worker : holders_[u]) builder.Add(worker);
  }
  for (const Slice& slice : slices_) {
    builder.Add(slice.unit);
    if (!slice.whole) builder.Add(slice.parameter).Add(slice.dim).Add(slice.begin).Add(slice.length);
  }
  return builder.Finish();
}

absl::StatusOr<SchemeInput> SchemeInputOf(const ModelShape& shape, const MaskRequest& request) {
  TESSERA_RETURN_IF_ERROR(CheckRequest(request));
  TESSERA_ASSIGN_OR_RETURN(const UnitTable table,
                           MakeUnits(shape, request.granularity, request.ends_always_on, request.workers));
  TESSERA_RETURN_IF_ERROR(CheckHolders(request));
  TESSERA_ASSIGN_OR_RETURN(const UnitCosts costs, CostsOf(request, table.units));
  return MakeSchemeInput(request, table.units, costs);
}

absl::StatusOr<MaskPlan> MakeMaskPlan(const ModelShape& shape, const MaskRequest& request) {
  TESSERA_RETURN_IF_ERROR(CheckRequest(request));
  const MaskScheme* scheme = FindMaskScheme(request.scheme);
  if (scheme == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("scheme: no mask scheme has the number ", static_cast<int>(request.scheme)));
  }
  TESSERA_ASSIGN_OR_RETURN(UnitTable table,
                           MakeUnits(shape, request.granularity, request.ends_always_on, request.workers));
  TESSERA_RETURN_IF_ERROR(CheckHolders(request));

  TESSERA_ASSIGN_OR_RETURN(const UnitCosts costs, CostsOf(request, table.units));
  const SchemeInput input = MakeSchemeInput(request, table.units, costs);
  Assignment assignment;
  if (input.units() > 0) {
    TESSERA_ASSIGN_OR_RETURN(assignment, scheme->Assign(input));
  }
  std::vector<int> everyone(request.workers);
  std::iota(everyone.begin(), everyone.end(), 0);
  std::vector<std::vector<int>> holders;
  holders.reserve(table.units.size());
  size_t next = 0;
  for (const Unit& unit : table.units) holders.push_back(unit.always_on ? everyone : assignment[next++]);

  MaskPlan plan(request.workers, std::move(table.units), std::move(holders), std::move(table.slices));
  TESSERA_RETURN_IF_ERROR(CheckFit(plan, request, costs));
  TESSERA_RETURN_IF_ERROR(CheckGap(plan, request, scheme->name()));
  return plan;
}

}  // namespace tessera::plan
