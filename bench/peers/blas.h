// Common parts of the dense peers with a C BLAS.
#pragma once

#include <memory>

#include "peers/peer.h"

namespace tessera::bench {

constexpr int kBlasRowMajor = 101;
constexpr int kBlasColumnMajor = 102;
constexpr int kBlasNoTrans = 111;
constexpr int kBlasTrans = 112;

using Sgemm = void(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a,
                   int lda, const float* b, int ldb, float beta, float* c, int ldc);
using Sgemv = void(int order, int trans, int m, int n, float alpha, const float* a, int lda, const float* x,
                   int incx, float beta, float* y, int incy);

/// The dense product through cblas_sgemm, or cblas_sgemv for one column. W is row-major.
std::unique_ptr<PreparedProduct> blas_product(Sgemm* sgemm, Sgemv* sgemv, const Work& work);

}  // namespace tessera::bench
