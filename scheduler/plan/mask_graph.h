// Quality of a mask plan: how well gradients mix between workers.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "scheduler/plan/mask_plan.h"

namespace tessera::plan {

struct MaskGraph {
  // 1 - lambda_2 of D_w^-1/2 B D_u^-1 B^T D_w^-1/2 over the maskable units, where
  // B is the workers x units incidence. 1 when every worker holds everything
  // or nothing is maskable; 0 when the graph falls apart, also when a worker
  // holds no maskable unit.
  double gap = 1;
  // Growth of the gradient's variance on IID shards, mean over maskable
  // elements of N / r (r holders of N workers). 1 for plain data parallelism.
  double variance_factor = 1;
  // E b_k^2 of a uniformly random r-subset relative to the variance of the
  // workers' partial derivatives: (N - r) / (r (N - 1)), mean over maskable elements.
  double bias_factor = 0;
};

MaskGraph AnalyseMaskGraph(const MaskPlan& plan);

// The gap alone. `holders` lists, for each maskable unit, its holders among
// ranks 0 to workers - 1; `counts`, unless empty, how many units there are of each. Cost grows with the
// cube of the smaller of workers and distinct holder sets.
double SpectralGap(int workers, const std::vector<std::vector<int>>& holders,
                   absl::Span<const int> counts = {});

}  // namespace tessera::plan
