// What masking does to the gradient, and the bound on convergence that follows.
//
// N workers, r of them hold element k. The estimate of its derivative is the mean over the
// holders, g_k = (1/r) sum over i in H_k of d_i, where d_i is worker i's derivative; the
// wanted value is the mean over all N.
#pragma once

#include "absl/types/span.h"

namespace tessera::plan {

// b_k = sum over i of (m_ik / r - 1 / N) d_i for one set of holders (ranks, not empty).
double MaskingBias(absl::Span<const double> derivatives, absl::Span<const int> holders);

// E b_k^2 over uniformly random r-subsets of the N workers, 1 <= r <= N:
// (N - r) / (r (N - 1)) times the mean squared deviation of the d_i from their mean.
// (E b_k is 0.) Sampling without replacement: Cochran, "Sampling Techniques", theorem 2.2.
double ExpectedSquaredBias(absl::Span<const double> derivatives, int holders);
// The factor alone; 0 for a single worker.
double SquaredBiasFactor(int workers, int holders);

// Growth of the gradient's variance on IID shards: N / r = 1 / coverage.
double VarianceFactor(int workers, int holders);

struct ConvergenceTerms {
  double initial_gap = 0;    // f(x0) - f*
  double learning_rate = 0;  // at most 1 / smoothness
  double steps = 1;
  double smoothness = 0;         // Lipschitz constant L of the gradient
  double gradient_variance = 0;  // sigma^2 of one worker
  double holders = 1;            // r
  double mean_squared_bias = 0;  // (1/T) sum over t of E ||b_t||^2
};

// Upper bound on (1/T) sum over t of E ||grad f(x_t)||^2:
// 2 (f(x0) - f*) / (eta T) + L eta sigma^2 / r + (1/T) sum E ||b_t||^2.
double GradientNormBound(const ConvergenceTerms& terms);

}  // namespace tessera::plan
