// Which worker holds which unit. A mask plan is a pure function of (model
// shape, request): scheduler and ranks compute it apart and compare its
// fingerprint; it is never shipped. Randomness is counter-based on the seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/plan/model_shape.h"

namespace tessera::plan {

enum class Granularity : uint8_t { kBlock, kNeuron };
enum class Scheme : uint8_t { kFull, kCyclic, kRandomBalanced, kSizeAware, kPlaced };

// The smallest piece of a model that a worker holds or does not. Unit 0 is the part outside the
// blocks and is always on. With block granularity unit b + 1 is block b. With neuron granularity a
// block is one unit per chunk of each of its axes and an always-on unit for its rest (the norms);
// a block that is always on stays one unit. A unit's block is found in Unit::block.
struct Unit {
  std::string name;
  int block = kNoBlock;
  Axis axis = Axis::kNone;
  int64_t chunk = -1;
  bool always_on = false;
  int64_t elements = 0;
  double flops_per_token = 0;
};

// What a unit has of a parameter: indices [begin, begin + length) along dimension `dim`.
struct Slice {
  int unit = 0;
  int parameter = 0;  // index into ModelShape::parameters
  int dim = 0;        // 0 for a whole parameter
  int64_t begin = 0;
  int64_t length = 0;
  int64_t elements = 0;
  bool whole = true;  // the unit has all of the parameter
};

struct WorkerCapacity {
  int64_t usable_bytes = 0;     // for what is held, by UnitCosts; 0 = unknown, taken as enough
  double relative_speed = 1;    // loads are made proportional to it
  double bytes_per_second = 0;  // of its link, either direction; 0 = unknown
};

// What counts against a worker's usable bytes. Without units: model states, MaskRequest::bytes_per_element.
struct UnitCosts {
  int64_t always_on = 0;
  std::vector<int64_t> units;  // maskable ones, in their order
  // Besides, for each sample of a worker's micro-step; units empty: nothing.
  int64_t always_on_per_sample = 0;
  std::vector<int64_t> units_per_sample;
};

struct MaskRequest {
  int workers = 1;
  Granularity granularity = Granularity::kBlock;
  Scheme scheme = Scheme::kCyclic;
  double coverage = 1;  // (0, 1], share of the maskable elements per worker
  int min_holders = 1;
  double min_gap = 0;          // least spectral gap of the mask graph
  bool ends_always_on = true;  // first and last block on every worker
  uint64_t seed = 1;
  int64_t bytes_per_element = 16;          // model states, fp32 Adam
  std::vector<WorkerCapacity> capacities;  // empty: equal workers without limit
  UnitCosts costs;
  double flops_per_second = 0;   // forward and backward at relative speed 1; 0 = unknown
  std::vector<int64_t> samples;  // per micro-step, by worker; empty: one each, as far as costs go
  double tokens_per_sample = 0;  // of a step, over its micro-steps; 0 = unknown, taken as 1
};

class MaskPlan {
 public:
  MaskPlan() = default;
  // slices: every element of every parameter once, in the order of the parameters.
  MaskPlan(int workers, std::vector<Unit> units, std::vector<std::vector<int>> holders,
           std::vector<Slice> slices);

  int workers() const { return workers_; }
  const std::vector<Unit>& units() const { return units_; }
  // Of all units, by parameter, then by begin.
  const std::vector<Slice>& slices() const { return slices_; }
  bool IsAlwaysOn(int block) const;  // every unit of the block is

  bool Holds(int worker, int unit) const;
  // Ranks in ascending order. The first is the unit's owner: it counts the
  // unit's gradient norm once and writes the unit's checkpoint.
  absl::Span<const int> Holders(int unit) const { return holders_[unit]; }

  double Coverage(int worker) const;        // share of the maskable elements, 0-1
  double ParameterShare(int worker) const;  // share of all elements, 0-1
  int64_t Elements(int worker) const;
  double FlopsPerToken(int worker) const;
  double HolderShare(int unit) const;  // share of workers that hold the unit
  // Mean of the same over the maskable elements of a block, 1 if there are none: C of the residual scales.
  double BlockHolderShare(int block) const;
  // Distinct holder sets of more than one rank, each a communicator.
  std::vector<std::vector<int>> HolderSets() const;
  uint64_t Fingerprint() const;

 private:
  int workers_ = 0;
  std::vector<Unit> units_;
  std::vector<std::vector<int>> holders_;
  std::vector<Slice> slices_;
};

// InvalidArgument names the field and what would be right; ResourceExhausted
// names the worker that does not fit and the missing bytes.
absl::StatusOr<MaskPlan> MakeMaskPlan(const ModelShape& shape, const MaskRequest& request);

}  // namespace tessera::plan
