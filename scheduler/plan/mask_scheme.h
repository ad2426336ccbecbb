// A mask scheme hands out the maskable units. One file in schemes/ per scheme, which
// ends in TESSERA_REGISTER_MASK_SCHEME; the conformance test runs over the registry.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "scheduler/plan/mask_plan.h"

namespace tessera::plan {

// Units here are the maskable ones alone, numbered from 0.
struct SchemeInput {
  int workers = 1;
  std::vector<int64_t> elements;  // by unit
  std::vector<double> loads;      // by unit: FLOPs per token, or elements when FLOPs are unknown
  std::vector<int> holders;       // by unit: how many, 1 to workers
  std::vector<double> shares;     // by worker: wanted share of all handed-out load, see load_shares.h
  std::vector<int64_t> limits;    // by worker: most maskable elements
  bool equal_workers = true;      // capacities are the same for all
  // For schemes that weigh bytes and seconds themselves.
  double coverage = 1;
  int min_holders = 1;
  int64_t always_on_elements = 0;
  double always_on_flops = 0;              // per token, forward
  UnitCosts costs;                         // of all units
  std::vector<WorkerCapacity> capacities;  // one for each worker
  double flops_per_second = 0;             // at relative speed 1; 0 = unknown
  std::vector<int64_t> samples;            // per micro-step, one for each worker
  double tokens_per_sample = 1;            // of a step
  double min_gap = 0;
  uint64_t seed = 1;

  int units() const { return static_cast<int>(elements.size()); }
};

// What MakeMaskPlan asks the scheme of `request`; errors as it.
absl::StatusOr<SchemeInput> SchemeInputOf(const ModelShape& shape, const MaskRequest& request);

// By unit: its holders, ascending.
using Assignment = std::vector<std::vector<int>>;

class MaskScheme {
 public:
  virtual ~MaskScheme() = default;
  virtual Scheme scheme() const = 0;
  virtual absl::string_view name() const = 0;  // as job files spell it
  // Gives unit u exactly input.holders[u] distinct holders; a pure function. Min_gap and
  // limits are aims here: MakeMaskPlan rejects a plan that misses them. InvalidArgument for
  // an input this scheme cannot serve.
  virtual absl::StatusOr<Assignment> Assign(const SchemeInput& input) const = 0;
};

// Called before main; the registry keeps the scheme for the life of the process.
bool RegisterMaskScheme(std::unique_ptr<MaskScheme> scheme);
// In the order of Scheme.
std::vector<const MaskScheme*> MaskSchemes();
// nullptr when there is none.
const MaskScheme* FindMaskScheme(Scheme scheme);

#define TESSERA_REGISTER_MASK_SCHEME(Class)               \
  [[maybe_unused]] static const bool registered_##Class = \
      ::tessera::plan::RegisterMaskScheme(std::make_unique<Class>())

}  // namespace tessera::plan
