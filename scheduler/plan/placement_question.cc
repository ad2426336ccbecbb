#include "scheduler/plan/placement_question.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status_macros.h"

namespace tessera::plan {
namespace {

constexpr double kPasses = 3;          // forward, input gradients, weight gradients
constexpr int64_t kGradientBytes = 4;  // of an element
constexpr int64_t kMostBytes = int64_t{1} << 60;

}  // namespace

PlacementRequest PlacementQuestion(const SchemeInput& input) {
  PlacementRequest question{.coverage = input.coverage,
                            .safety_margin = 0,  // the capacities are what may be used
                            .min_holders = input.min_holders,
                            .min_gap = input.min_gap,
                            .seed = input.seed,
                            .remedies = false};
  const double passes = kPasses * input.tokens_per_sample;
  question.samples_of = input.samples;
  question.samples = std::accumulate(input.samples.begin(), input.samples.end(), int64_t{0}) /
                     std::max<int64_t>(1, static_cast<int64_t>(input.samples.size()));
  question.always_on = {.elements = input.always_on_elements,
                        .bytes = input.costs.always_on,
                        .bytes_per_sample = input.costs.always_on_per_sample,
                        .flops_per_sample = passes * input.always_on_flops,
                        .sync_bytes = kGradientBytes * input.always_on_elements};
  for (int u = 0; u < input.units(); ++u) {
    question.units.push_back({.elements = input.elements[u],
                              .bytes = input.costs.units[u],
                              .bytes_per_sample = input.costs.units_per_sample[u],
                              .flops_per_sample = passes * input.loads[u],
                              .sync_bytes = kGradientBytes * input.elements[u]});
  }
  bool links = false;
  for (const WorkerCapacity& capacity : input.capacities) links |= capacity.bytes_per_second > 0;
  for (const WorkerCapacity& capacity : input.capacities) {
    PlacementWorker worker{.bytes_per_second = capacity.bytes_per_second};
    if (capacity.usable_bytes > 0) worker.memory_bytes = std::min(capacity.usable_bytes, kMostBytes - 1);
    // Relative speeds alone compare workers, but not computing with sending.
    if (input.flops_per_second > 0 || !links) {
      worker.flops_per_second =
          capacity.relative_speed * (input.flops_per_second > 0 ? input.flops_per_second : 1);
    }
    question.workers.push_back(worker);
  }
  return question;
}

absl::StatusOr<std::vector<int64_t>> BalanceSamples(const ModelShape& shape, const MaskRequest& request,
                                                    int64_t samples) {
  std::vector<int64_t> alike(static_cast<size_t>(std::max(0, request.workers)), samples);
  if (request.capacities.empty()) return alike;
  MaskRequest asked = request;
  asked.samples = alike;
  TESSERA_ASSIGN_OR_RETURN(const SchemeInput input, SchemeInputOf(shape, asked));
  PlacementRequest question = PlacementQuestion(input);
  question.samples_of.clear();
  question.balance_samples = true;
  TESSERA_ASSIGN_OR_RETURN(PlacementAnswer answer, Place(question));
  if (!answer.placement) return alike;  // the mask plan says why
  return std::move(answer.placement->samples);
}

}  // namespace tessera::plan
