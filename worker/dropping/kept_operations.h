// Gradient dropping's arithmetic where the tensors are: on the host, or on a device that a plug-in drives.
// Pointers to tensors are of that place; bitmaps and sketches are of the host.
//
// On a device everything but picks and sketches is queued and nothing waits: what is read and written must
// live until the queue has got to it, as a caching allocator sees to.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "worker/dropping/cut.h"
#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/selection.h"
#include "worker/kernels/kept_elements.h"

namespace tessera::worker {

// Of one selection of one tensor. Lives on one thread.
class KeptOperations {
 public:
  virtual ~KeptOperations() = default;
  // CutGradient, ReturnKept, GatherKept and ScatterKept of cut.h.
  virtual void Cut(const float* gradient, bool first, const ResidualView& residual, float* ring) = 0;
  virtual void Return(int64_t begin, int64_t end, const float* ring, const ResidualView& residual) = 0;
  virtual void Gather(const float* from, float* to) = 0;
  virtual void Scatter(const float* from, float* to) = 0;
  // Elements [begin, begin + count) of the tensor -> out: kept ones from the ring [kept], zeros for the rest.
  // To be called in ascending order from 0 on; count is a multiple of 64 or reaches the last element.
  virtual void Spread(int64_t begin, int64_t count, const float* ring, float* out) = 0;
  // The optimizer's step on the whole tensor in one pass; false: there is no such pass, spread and step.
  virtual bool Update(const kernels::UpdateArguments& /*arguments*/) { return false; }
};

class KeptDevice {
 public:
  virtual ~KeptDevice() = default;
  // `selection` outlives what is returned.
  virtual std::unique_ptr<KeptOperations> Prepare(const Selection& selection) = 0;
  // DroppingRule::Pick. The input's moments and residual are of the device, its sketch of the host.
  virtual void Pick(const DroppingRule& rule, const RuleInput& input, absl::Span<uint64_t> words) = 0;
  virtual std::vector<float> Sketch(const RuleInput& input) = 0;
};

KeptDevice& HostKeptDevice();

}  // namespace tessera::worker
