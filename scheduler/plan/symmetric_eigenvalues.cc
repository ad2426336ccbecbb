#include "scheduler/plan/symmetric_eigenvalues.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

#include "base/check.h"

namespace tessera::plan {
namespace {

constexpr int kMostSweeps = 64;  // about ten suffice; convergence is quadratic

// Zeroes entry (p, q) by a rotation in that plane.
void Rotate(std::vector<double>& m, int n, int p, int q) {
  const auto at = [&](int i, int j) -> double& { return m[static_cast<size_t>(i) * n + j]; };
  const double theta = (at(q, q) - at(p, p)) / (2 * at(p, q));
  const double t = (theta >= 0 ? 1.0 : -1.0) / (std::abs(theta) + std::sqrt(theta * theta + 1));
  const double c = 1 / std::sqrt(t * t + 1);
  const double s = t * c;
  for (int k = 0; k < n; ++k) {
    const double kp = at(k, p);
    const double kq = at(k, q);
    at(k, p) = c * kp - s * kq;
    at(k, q) = s * kp + c * kq;
  }
  for (int k = 0; k < n; ++k) {
    const double pk = at(p, k);
    const double qk = at(q, k);
    at(p, k) = c * pk - s * qk;
    at(q, k) = s * pk + c * qk;
  }
}

}  // namespace

std::vector<double> SymmetricEigenvalues(std::vector<double> matrix, int n) {
  TESSERA_CHECK(matrix.size() == static_cast<size_t>(n) * n);
  double scale = 0;
  for (double x : matrix) scale = std::max(scale, std::abs(x));
  const double negligible = 1e-16 * scale;
  bool rotated = true;
  for (int sweep = 0; rotated && sweep < kMostSweeps; ++sweep) {
    rotated = false;
    for (int p = 0; p < n; ++p) {
      for (int q = p + 1; q < n; ++q) {
        if (std::abs(matrix[static_cast<size_t>(p) * n + q]) <= negligible) continue;
        Rotate(matrix, n, p, q);
        rotated = true;
      }
    }
  }
  std::vector<double> eigenvalues(n);
  for (int i = 0; i < n; ++i) eigenvalues[i] = matrix[static_cast<size_t>(i) * n + i];
  std::sort(eigenvalues.begin(), eigenvalues.end(), std::greater<>());
  return eigenvalues;
}

}  // namespace tessera::plan
