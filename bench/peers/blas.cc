#include "peers/blas.h"

namespace tessera::bench {
namespace {

/// A row-major W is the transpose of a column-major one.
class BlasProduct : public PreparedProduct {
 public:
  BlasProduct(Sgemm* sgemm, Sgemv* sgemv, const Work& work)
      : sgemm_(sgemm),
        sgemv_(sgemv),
        pattern_(work.weights.pattern),
        weights_(work.dense.data()),
        m_(static_cast<int>(work.m())),
        k_(static_cast<int>(work.k())),
        n_(static_cast<int>(work.n)),
        by_rows_(work.layout == Layout::row_major),
        task_(work.task) {}

  void run(const Arrays& a) override {
    switch (task_) {
      case Task::forward: return forward(a.x, a.y);
      case Task::input_gradient: return input_gradient(a.dy, a.dx);
      default: return sddmm(a.dy, a.x, a.dw);
    }
  }

  uint64_t weight_bytes() const override {
    return sizeof(float) * static_cast<uint64_t>(m_) * static_cast<uint64_t>(k_);
  }
  uint64_t gradient_size() const override {
    return task_ == Task::sddmm ? uint64_t{pattern_.rows} * pattern_.cols : 0;
  }
  void get_gradient(const float* dw, std::span<float> stored) const override {
    pick_gradient(pattern_, dw, stored);
  }

 private:
  void forward(const float* x, float* y) {
    if (n_ == 1)
      sgemv_(kBlasRowMajor, kBlasNoTrans, m_, k_, 1, weights_, k_, x, 1, 0, y, 1);
    else if (by_rows_)
      sgemm_(kBlasRowMajor, kBlasNoTrans, kBlasNoTrans, m_, n_, k_, 1, weights_, k_, x, n_, 0, y, n_);
    else
      sgemm_(kBlasColumnMajor, kBlasTrans, kBlasNoTrans, m_, n_, k_, 1, weights_, k_, x, k_, 0, y, m_);
  }

  void input_gradient(const float* dy, float* dx) {
    if (n_ == 1)
      sgemv_(kBlasRowMajor, kBlasTrans, m_, k_, 1, weights_, k_, dy, 1, 0, dx, 1);
    else if (by_rows_)
      sgemm_(kBlasRowMajor, kBlasTrans, kBlasNoTrans, k_, n_, m_, 1, weights_, k_, dy, n_, 0, dx, n_);
    else
      sgemm_(kBlasColumnMajor, kBlasNoTrans, kBlasNoTrans, k_, n_, m_, 1, weights_, k_, dy, m_, 0, dx, k_);
  }

  void sddmm(const float* dy, const float* x, float* dw) {
    if (by_rows_)
      sgemm_(kBlasRowMajor, kBlasNoTrans, kBlasTrans, m_, k_, n_, 1, dy, n_, x, n_, 0, dw, k_);
    else
      sgemm_(kBlasColumnMajor, kBlasNoTrans, kBlasTrans, k_, m_, n_, 1, x, k_, dy, m_, 0, dw, k_);
  }

  Sgemm* sgemm_;
  Sgemv* sgemv_;
  const Pattern& pattern_;
  const float* weights_;
  int m_, k_, n_;
  bool by_rows_;
  Task task_;
};

}  // namespace

std::unique_ptr<PreparedProduct> blas_product(Sgemm* sgemm, Sgemv* sgemv, const Work& work) {
  return std::make_unique<BlasProduct>(sgemm, sgemv, work);
}

}  // namespace tessera::bench
