#include "scheduler/plan/placement_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/plan/holder_counts.h"

namespace tessera::plan {
namespace {

constexpr int64_t kUnlimited = int64_t{1} << 60;

absl::Status Wrong(absl::string_view field, const absl::AlphaNum& value, absl::string_view right) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, "; must be ", right));
}

bool IsRate(double x) { return std::isfinite(x) && x >= 0; }

absl::Status CheckUnit(const std::string& field, const PlacementUnit& unit) {
  for (const auto& [name, value] :
       {std::pair("elements", unit.elements), std::pair("bytes", unit.bytes),
        std::pair("bytes_per_sample", unit.bytes_per_sample), std::pair("sync_bytes", unit.sync_bytes)}) {
    if (value < 0 || value >= kUnlimited)
      return Wrong(absl::StrCat(field, ".", name), value, "from 0 to 2^60");
  }
  if (!IsRate(unit.flops_per_sample)) {
    return Wrong(field + ".flops_per_sample", unit.flops_per_sample, "0 or more and finite");
  }
  return absl::OkStatus();
}

absl::Status CheckWorker(const std::string& field, const PlacementWorker& worker) {
  if (worker.memory_bytes < 0 || worker.memory_bytes >= kUnlimited) {
    return Wrong(field + ".memory_bytes", worker.memory_bytes, "0 (unknown) to 2^60");
  }
  if (!IsRate(worker.flops_per_second)) {
    return Wrong(field + ".flops_per_second", worker.flops_per_second, "0 (unknown) or more and finite");
  }
  if (!IsRate(worker.bytes_per_second)) {
    return Wrong(field + ".bytes_per_second", worker.bytes_per_second, "0 (unknown) or more and finite");
  }
  return absl::OkStatus();
}

absl::Status CheckTour(const PlacementRequest& request) {
  if (request.tour.empty()) return absl::OkStatus();
  std::vector<int> sorted = request.tour;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int>(i)) return Wrong("tour", sorted[i], "a permutation of the workers");
  }
  return sorted.size() == request.workers.size() ? absl::OkStatus()
                                                 : Wrong("tour", absl::StrCat(sorted.size(), " entries"),
                                                         "as long as there are workers, or empty");
}

// Groups of units that have as many holders: each group becomes one bundle.
std::vector<std::vector<int>> MakeBundles(const PlacementRequest& request, const std::vector<int>& holders) {
  const int units = static_cast<int>(holders.size());
  std::vector<std::vector<int>> bundles;
  if (request.max_holder_sets == 0 || units <= request.max_holder_sets) {
    for (int u = 0; u < units; ++u) bundles.push_back({u});
    return bundles;
  }
  std::map<int, std::vector<int>> by_count;
  for (int u = 0; u < units; ++u) by_count[holders[u]].push_back(u);
  int left = request.max_holder_sets;
  int units_left = units;
  int classes_left = static_cast<int>(by_count.size());
  for (auto& [count, members] : by_count) {
    const int size = static_cast<int>(members.size());
    const int want = static_cast<int>(std::lround(static_cast<double>(left) * size / units_left));
    const int groups = std::clamp(want, 1, std::max(1, std::min(size, left - (classes_left - 1))));
    std::stable_sort(members.begin(), members.end(),
                     [&](int a, int b) { return request.units[a].bytes > request.units[b].bytes; });
    using Filled = std::pair<int64_t, int>;  // the emptiest group takes the next largest unit
    std::priority_queue<Filled, std::vector<Filled>, std::greater<>> emptiest;
    const int first = static_cast<int>(bundles.size());
    for (int g = 0; g < groups; ++g) {
      bundles.emplace_back();
      emptiest.push({0, first + g});
    }
    for (int u : members) {
      auto [bytes, group] = emptiest.top();
      emptiest.pop();
      bundles[group].push_back(u);
      emptiest.push({bytes + std::max<int64_t>(1, request.units[u].bytes), group});
    }
    left -= groups;
    units_left -= size;
    --classes_left;
  }
  for (std::vector<int>& members : bundles) std::sort(members.begin(), members.end());
  return bundles;
}

double LeastKnown(const std::vector<PlacementWorker>& workers, double PlacementWorker::*figure) {
  double least = 0;
  for (const PlacementWorker& worker : workers) {
    if (worker.*figure > 0 && (least == 0 || worker.*figure < least)) least = worker.*figure;
  }
  return least;
}

void AddWorkers(const PlacementRequest& request, PlacementInstance& in) {
  const double speed = LeastKnown(request.workers, &PlacementWorker::flops_per_second);
  const double link = LeastKnown(request.workers, &PlacementWorker::bytes_per_second);
  int64_t memory = 0;
  for (const PlacementWorker& worker : request.workers) {
    if (worker.memory_bytes > 0 && (memory == 0 || worker.memory_bytes < memory))
      memory = worker.memory_bytes;
  }
  const double n = in.workers;
  const double base_traffic = 2 * (n - 1) / n * static_cast<double>(request.always_on.sync_bytes);
  for (int w = 0; w < in.workers; ++w) {
    const PlacementWorker& worker = request.workers[w];
    const int64_t bytes = worker.memory_bytes > 0 ? worker.memory_bytes : memory;
    const double usable = std::floor(static_cast<double>(bytes) * (1 - request.safety_margin));
    const int64_t base = request.always_on.bytes + in.samples[w] * request.always_on.bytes_per_sample;
    in.room.push_back((bytes == 0 ? kUnlimited : static_cast<int64_t>(usable)) - base);
    const double flops = worker.flops_per_second > 0 ? worker.flops_per_second : speed;
    const double rate = worker.bytes_per_second > 0 ? worker.bytes_per_second : link;
    // Without any known speed workers count as equal; FLOPs then stand for time unless links are known.
    const double nominal = link > 0 ? 0 : 1;
    in.seconds_per_flop.push_back(static_cast<double>(in.samples[w]) * (flops > 0 ? 1 / flops : nominal));
    in.seconds_per_byte.push_back(rate > 0 ? 1 / rate : 0);
    in.fixed_seconds.push_back(request.always_on.flops_per_sample * in.seconds_per_flop[w] +
                               base_traffic * in.seconds_per_byte[w]);
  }
}

std::string Bytes(int64_t bytes) { return absl::StrCat(bytes, " bytes"); }

std::optional<Infeasibility> AlwaysOnFails(const PlacementInstance& in) {
  const auto least = std::min_element(in.room.begin(), in.room.end());
  if (*least >= 0) return std::nullopt;
  Infeasibility why{.constraint = Constraint::kAlwaysOn,
                    .worker = static_cast<int>(least - in.room.begin()),
                    .missing_bytes = -*least};
  why.message = absl::StrCat("worker ", why.worker, " lacks ", Bytes(why.missing_bytes),
                             " for the part of the model that every worker holds");
  return why;
}

std::optional<Infeasibility> UnitFails(const PlacementInstance& in) {
  for (int b = 0; b < in.bundles(); ++b) {
    int fitting = 0;
    std::vector<int64_t> missing;
    for (int w = 0; w < in.workers; ++w) {
      const int64_t lack = in.Bytes(w, b) - in.room[w];
      fitting += lack <= 0 ? 1 : 0;
      if (lack > 0) missing.push_back(lack);
    }
    if (fitting >= in.holders[b]) continue;
    std::sort(missing.begin(), missing.end());
    Infeasibility why{.constraint = Constraint::kUnit,
                      .proven = in.members[b].size() == 1,
                      .unit = in.members[b].front(),
                      .missing_bytes = missing[in.holders[b] - fitting - 1]};
    why.message = absl::StrCat("unit ", why.unit, " needs ", in.holders[b], " holders, but fits on ", fitting,
                               " workers; the next one lacks ", Bytes(why.missing_bytes));
    return why;
  }
  return std::nullopt;
}

std::optional<Infeasibility> TotalFails(const PlacementInstance& in) {
  double needed = 0;
  double room = 0;
  // Workers with other samples need other bytes for a unit: count the least.
  const int64_t samples = *std::min_element(in.samples.begin(), in.samples.end());
  for (int b = 0; b < in.bundles(); ++b) {
    needed += static_cast<double>(in.bytes[b] + samples * in.bytes_per_sample[b]) * in.holders[b];
  }
  for (int w = 0; w < in.workers; ++w) {
    double all = 0;
    for (int b = 0; b < in.bundles(); ++b) {
      if (in.Bytes(w, b) <= in.room[w]) all += static_cast<double>(in.Bytes(w, b));
    }
    room += std::min(static_cast<double>(in.room[w]), all);
  }
  if (needed <= room) return std::nullopt;
  Infeasibility why{.constraint = Constraint::kTotalMemory,
                    .missing_bytes = static_cast<int64_t>(std::ceil(needed - room))};
  // A bundle that fits nowhere may still fit unit by unit.
  for (const std::vector<int>& members : in.members) why.proven &= members.size() == 1;
  why.message = absl::StrCat("all workers together lack ", Bytes(why.missing_bytes),
                             " for that many holders of every unit");
  return why;
}

// The walk matrix of the mask graph is positive semi-definite with at most min(workers, units) eigenvalues
// that are not zero, of which the first is 1; its trace is the mean over a worker's units of 1/k,
// summed over workers, which is at least workers / max k. So the second eigenvalue is at least the mean
// of the others.
std::optional<Infeasibility> GapFails(const PlacementRequest& request, const PlacementInstance& in) {
  if (request.min_gap <= 0 || in.bundles() == 0 || in.workers == 1) return std::nullopt;
  const double k = *std::max_element(in.holders.begin(), in.holders.end());
  const double rank = std::min(in.workers, in.bundles());
  const double least = in.workers / k - 1;
  const double most = rank > 1 ? 1 - least / (rank - 1) : 1;
  if (request.min_gap <= most + 1e-12) return std::nullopt;
  Infeasibility why = GapFailure(request, std::max(0.0, most), true);
  why.message =
      absl::StrCat("min_gap: ", request.min_gap, " cannot be reached with at most ", k, " of ", in.workers,
                   " workers holding a unit; no mask plan has more than ", std::max(0.0, most));
  return why;
}

}  // namespace

absl::Status CheckPlacementRequest(const PlacementRequest& request) {
  const size_t workers = request.workers.size();
  if (workers < 1 || workers > kMostPlacedWorkers) {
    return Wrong("workers", absl::StrCat(workers, " entries"),
                 absl::StrCat("from 1 to ", kMostPlacedWorkers));
  }
  if (request.units.size() > kMostPlacedUnits) {
    return Wrong("units", absl::StrCat(request.units.size(), " entries"),
                 absl::StrCat("at most ", kMostPlacedUnits));
  }
  if (!(request.safety_margin >= 0 && request.safety_margin < 1)) {
    return Wrong("safety_margin", request.safety_margin, "in [0, 1)");
  }
  if (!request.coverage_auto && !(request.coverage > 0 && request.coverage <= 1)) {
    return Wrong("coverage", request.coverage, "in (0, 1]");
  }
  if (request.min_holders < 1 || request.min_holders > static_cast<int>(workers)) {
    return Wrong("min_holders", request.min_holders,
                 absl::StrCat("from 1 to the number of workers, ", workers));
  }
  const double least = request.min_holders / static_cast<double>(workers);
  if (!request.coverage_auto && request.coverage < least - 1e-9) {
    return Wrong("coverage", request.coverage,
                 absl::StrCat("at least min_holders / workers, ", least, ", or units would lack holders"));
  }
  if (!(request.min_gap >= 0 && request.min_gap <= 1)) return Wrong("min_gap", request.min_gap, "in [0, 1]");
  if (request.max_holder_sets < 0)
    return Wrong("max_holder_sets", request.max_holder_sets, "0 (no limit) or more");
  if (request.samples < 1 || request.samples > (int64_t{1} << 20)) {
    return Wrong("samples", request.samples, "from 1 to 2^20");
  }
  if (!request.samples_of.empty() && request.samples_of.size() != workers) {
    return Wrong("samples_of", absl::StrCat(request.samples_of.size(), " entries"),
                 "as long as there are workers, or empty");
  }
  for (int64_t samples : request.samples_of) {
    if (samples < 1 || samples > (int64_t{1} << 20)) return Wrong("samples_of", samples, "from 1 to 2^20");
  }
  TESSERA_RETURN_IF_ERROR(CheckUnit("always_on", request.always_on));
  for (size_t u = 0; u < request.units.size(); ++u) {
    TESSERA_RETURN_IF_ERROR(CheckUnit(absl::StrCat("units[", u, "]"), request.units[u]));
  }
  for (size_t w = 0; w < workers; ++w) {
    TESSERA_RETURN_IF_ERROR(CheckWorker(absl::StrCat("workers[", w, "]"), request.workers[w]));
  }
  return CheckTour(request);
}

PlacementInstance MakeInstance(const PlacementRequest& request, const std::vector<int64_t>& samples) {
  PlacementInstance in{.workers = static_cast<int>(request.workers.size()),
                       .samples = samples,
                       .tour = request.tour,
                       .min_gap = request.min_gap,
                       .seed = request.seed};
  std::vector<int64_t> elements;
  for (const PlacementUnit& unit : request.units) elements.push_back(unit.elements);
  const std::vector<int> holders = HolderCounts(request.coverage, in.workers, elements);
  in.members = MakeBundles(request, holders);
  double all = 0;
  for (const std::vector<int>& members : in.members) {
    const int count = holders[members.front()];
    in.holders.push_back(count);
    PlacementUnit sum;
    for (int u : members) {
      const PlacementUnit& unit = request.units[u];
      sum.bytes += unit.bytes;
      sum.bytes_per_sample += unit.bytes_per_sample;
      sum.flops_per_sample += unit.flops_per_sample;
      sum.sync_bytes += unit.sync_bytes;
      sum.elements += unit.elements;
    }
    in.bytes.push_back(sum.bytes);
    in.bytes_per_sample.push_back(sum.bytes_per_sample);
    in.flops.push_back(sum.flops_per_sample);
    in.traffic.push_back(2.0 * (count - 1) / count * static_cast<double>(sum.sync_bytes));
    in.length.push_back(
        static_cast<double>(std::max<int64_t>(1, sum.bytes + request.samples * sum.bytes_per_sample)));
    all += in.length.back();
  }
  for (double& length : in.length) length /= all;
  AddWorkers(request, in);
  return in;
}

std::optional<Infeasibility> ProveInfeasible(const PlacementRequest& request, const PlacementInstance& in) {
  if (auto why = AlwaysOnFails(in)) return why;
  if (in.bundles() == 0) return std::nullopt;
  if (auto why = UnitFails(in)) return why;
  if (auto why = TotalFails(in)) return why;
  return GapFails(request, in);
}

Infeasibility PackingFailure(const PlacementRequest& request, const Holding& closest, bool proven) {
  Infeasibility why{.constraint = Constraint::kPacking, .proven = proven};
  for (int w = 0; w < closest.instance().workers; ++w) {
    if (-closest.free(w) <= why.missing_bytes) continue;
    why.worker = w;
    why.missing_bytes = -closest.free(w);
  }
  why.message = absl::StrCat("the workers' memory suffices in sum, but no way to give them whole units",
                             request.min_gap > 0 ? " with the spectral gap asked for" : "",
                             proven ? " exists" : " was found", "; in the closest one worker ", why.worker,
                             " lacks ", Bytes(why.missing_bytes));
  return why;
}

Infeasibility GapFailure(const PlacementRequest& request, double reached, bool proven) {
  Infeasibility why{.constraint = Constraint::kMinGap, .proven = proven};
  why.message =
      absl::StrCat("min_gap: ", request.min_gap, " is not reached; ", proven ? "the best" : "the best found",
                   " placement that fits has ", reached, "; raise coverage or lower min_gap");
  return why;
}

double CoverageBound(const PlacementRequest& request) {
  const PlacementInstance in =
      MakeInstance(request, std::vector<int64_t>(request.workers.size(), request.samples));
  if (in.bundles() == 0) return 1;
  double sum = 0;
  for (int w = 0; w < in.workers; ++w) {
    double whole = 0;
    for (int b = 0; b < in.bundles(); ++b) whole += static_cast<double>(in.Bytes(w, b));
    sum += whole > 0 ? std::clamp(static_cast<double>(in.room[w]) / whole, 0.0, 1.0) : 1;
  }
  // Bytes and elements may be distributed differently over the units: leave room for that.
  return std::min(1.0, sum / in.workers + 1.0 / in.workers);
}

}  // namespace tessera::plan
