// Compiled once for each instruction set, with TESSERA_EIGEN_ISA its name. Eigen's namespace is
// renamed in each, or the linker would merge the same templates of different instruction sets.
#define TESSERA_JOIN_(a, b) a##b
#define TESSERA_JOIN(a, b) TESSERA_JOIN_(a, b)
#define Eigen TESSERA_JOIN(Eigen_, TESSERA_EIGEN_ISA)
#include "peers/eigen_product.h"

#include <Eigen/Sparse>

namespace tessera::bench {
namespace {

template <int order>
void multiply(const EigenWork& work, const float* x, float* y) {
  using Dense = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, order>;
  using Sparse = Eigen::SparseMatrix<float, Eigen::RowMajor, int>;
  const Eigen::Map<const Sparse> w(work.m, work.k, work.nonzeros, work.row_begin, work.columns, work.values);
  Eigen::Map<Dense>(y, work.m, work.n).noalias() = w * Eigen::Map<const Dense>(x, work.k, work.n);
}

}  // namespace

void TESSERA_JOIN(eigen_product_, TESSERA_EIGEN_ISA)(const EigenWork& work, const float* x, float* y) {
  if (work.row_major)
    multiply<Eigen::RowMajor>(work, x, y);
  else
    multiply<Eigen::ColMajor>(work, x, y);
}

}  // namespace tessera::bench
