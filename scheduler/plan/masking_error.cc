#include "scheduler/plan/masking_error.h"

#include "base/check.h"

namespace tessera::plan {
namespace {

double Mean(absl::Span<const double> values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

double MaskingBias(absl::Span<const double> derivatives, absl::Span<const int> holders) {
  TESSERA_CHECK(!holders.empty());
  double held = 0;
  for (int worker : holders) held += derivatives[worker];
  return held / static_cast<double>(holders.size()) - Mean(derivatives);
}

double ExpectedSquaredBias(absl::Span<const double> derivatives, int holders) {
  const double mean = Mean(derivatives);
  double deviation = 0;
  for (double d : derivatives) deviation += (d - mean) * (d - mean);
  const int workers = static_cast<int>(derivatives.size());
  return SquaredBiasFactor(workers, holders) * deviation / workers;
}

double SquaredBiasFactor(int workers, int holders) {
  TESSERA_CHECK(holders >= 1 && holders <= workers);
  if (workers == 1) return 0;
  return static_cast<double>(workers - holders) / (static_cast<double>(holders) * (workers - 1));
}

double VarianceFactor(int workers, int holders) {
  TESSERA_CHECK(holders >= 1 && holders <= workers);
  return static_cast<double>(workers) / holders;
}

double GradientNormBound(const ConvergenceTerms& t) {
  return 2 * t.initial_gap / (t.learning_rate * t.steps) +
         t.smoothness * t.learning_rate * t.gradient_variance / t.holders + t.mean_squared_bias;
}

}  // namespace tessera::plan
