// Eigen's sparse product, one function for each instruction set that it is compiled for.
#pragma once

namespace tessera::bench {

/// Y = W·X with W as CSR, m rows.
struct EigenWork {
  int m, k, n;
  int nonzeros;
  const int* row_begin;
  const int* columns;
  const float* values;
  bool row_major;  ///< X and Y
};

using EigenProduct = void(const EigenWork& work, const float* x, float* y);
EigenProduct eigen_product_generic;
EigenProduct eigen_product_avx2;
EigenProduct eigen_product_avx512;

}  // namespace tessera::bench
