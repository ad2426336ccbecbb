#include "scheduler/plan/symmetric_eigenvalues.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

#include "base/check.h"
#include "scheduler/plan/bisection.h"

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

struct Tridiagonal {
  std::vector<double> diagonal;
  std::vector<double> beside;  // [i] couples i - 1 and i; [0] is 0
};

// Reflections bring row and column k to two entries, from the first column on.
Tridiagonal Tridiagonalise(std::vector<double>& m, int n) {
  const auto at = [&](int i, int j) -> double& { return m[static_cast<size_t>(i) * n + j]; };
  Tridiagonal t{.diagonal = std::vector<double>(n), .beside = std::vector<double>(n, 0.0)};
  std::vector<double> v(n), p(n);
  for (int k = 0; k + 2 < n; ++k) {
    double norm = 0;
    for (int i = k + 1; i < n; ++i) norm += at(i, k) * at(i, k);
    norm = std::sqrt(norm);
    const double alpha = at(k + 1, k) > 0 ? -norm : norm;
    t.beside[k + 1] = alpha;
    double squared = 0;
    for (int i = k + 1; i < n; ++i) {
      v[i] = at(i, k) - (i == k + 1 ? alpha : 0);
      squared += v[i] * v[i];
    }
    if (squared == 0) continue;
    double along = 0;
    for (int i = k + 1; i < n; ++i) {
      p[i] = 0;
      for (int j = k + 1; j < n; ++j) p[i] += at(i, j) * v[j];
      p[i] *= 2 / squared;
      along += p[i] * v[i];
    }
    for (int i = k + 1; i < n; ++i) p[i] -= along / squared * v[i];
    for (int i = k + 1; i < n; ++i) {
      for (int j = k + 1; j < n; ++j) at(i, j) -= v[i] * p[j] + p[i] * v[j];
    }
  }
  t.beside[n - 1] = at(n - 1, n - 2);
  for (int i = 0; i < n; ++i) t.diagonal[i] = at(i, i);
  return t;
}

int EigenvaluesAbove(const Tridiagonal& t, double x) {
  int above = 0;
  double pivot = 1;
  for (size_t i = 0; i < t.diagonal.size(); ++i) {
    pivot = t.diagonal[i] - x - (i == 0 ? 0 : t.beside[i] * t.beside[i] / pivot);
    if (pivot == 0) pivot = -1e-300;
    above += pivot > 0 ? 1 : 0;
  }
  return above;
}

}  // namespace

double SecondEigenvalue(std::vector<double> matrix, int n) {
  TESSERA_CHECK(n >= 2 && matrix.size() == static_cast<size_t>(n) * n);
  const Tridiagonal t = Tridiagonalise(matrix, n);
  double bound = 0;  // Gershgorin
  for (int i = 0; i < n; ++i) {
    const double next = i + 1 < n ? std::abs(t.beside[i + 1]) : 0;
    bound = std::max(bound, std::abs(t.diagonal[i]) + std::abs(t.beside[i]) + next);
  }
  return Bisect(-bound, bound, [&](double x) { return EigenvaluesAbove(t, x) < 2; }).from;
}

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
