#include "peers/blas.h"

namespace tessera::bench {
namespace {

class BlasProduct : public Product {
 public:
  BlasProduct(Sgemm* sgemm, Sgemv* sgemv, const Work& work)
      : sgemm_(sgemm),
        sgemv_(sgemv),
        weights_(work.dense.data()),
        m_(static_cast<int>(work.m())),
        k_(static_cast<int>(work.k())),
        n_(static_cast<int>(work.n)),
        layout_(work.layout) {}

  void run(const float* x, float* y) override {
    if (n_ == 1)
      sgemv_(kBlasRowMajor, kBlasNoTrans, m_, k_, 1, weights_, k_, x, 1, 0, y, 1);
    else if (layout_ == Layout::row_major)
      sgemm_(kBlasRowMajor, kBlasNoTrans, kBlasNoTrans, m_, n_, k_, 1, weights_, k_, x, n_, 0, y,
             n_);
    else  // row-major W is the transpose of a column-major one
      sgemm_(kBlasColumnMajor, kBlasTrans, kBlasNoTrans, m_, n_, k_, 1, weights_, k_, x, k_, 0, y,
             m_);
  }

  uint64_t weight_bytes() const override {
    return sizeof(float) * static_cast<uint64_t>(m_) * static_cast<uint64_t>(k_);
  }

 private:
  Sgemm* sgemm_;
  Sgemv* sgemv_;
  const float* weights_;
  int m_, k_, n_;
  Layout layout_;
};

}  // namespace

std::unique_ptr<Product> blas_product(Sgemm* sgemm, Sgemv* sgemv, const Work& work) {
  return std::make_unique<BlasProduct>(sgemm, sgemv, work);
}

}  // namespace tessera::bench
