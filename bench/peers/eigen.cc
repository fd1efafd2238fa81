// Eigen: row-major CSR times dense, over OpenMP threads.
#include <Eigen/src/Core/util/Macros.h>
#include <fmt/format.h>
#include <omp.h>

#include "peers/eigen_product.h"
#include "peers/registry.h"
#include "sparse/pattern.h"

namespace tessera::bench {
namespace {

class EigenCsr : public PreparedProduct {
 public:
  EigenCsr(EigenProduct* product, const SparseMatrix& csr, const Work& work)
      : product_(product),
        values_(csr.values),
        columns_(csr.pattern.col_indices.begin(), csr.pattern.col_indices.end()),
        rows_(csr.pattern.crow_indices.begin(), csr.pattern.crow_indices.end()),
        work_{static_cast<int>(work.m()),
              static_cast<int>(work.k()),
              static_cast<int>(work.n),
              static_cast<int>(columns_.size()),
              rows_.data(),
              columns_.data(),
              values_.data(),
              work.layout == Layout::row_major} {}

  void run(const Arrays& a) override { product_(work_, a.x, a.y); }

  uint64_t weight_bytes() const override {
    return sizeof(float) * values_.size() + sizeof(int) * (columns_.size() + rows_.size());
  }

 private:
  EigenProduct* product_;
  std::vector<float> values_;
  std::vector<int> columns_, rows_;
  EigenWork work_;
};

EigenProduct* product_for(Isa isa) {
#ifdef __x86_64__
  if (isa >= Isa::avx512) return eigen_product_avx512;
  if (isa == Isa::avx2) return eigen_product_avx2;
#endif
  (void)isa;
  return eigen_product_generic;
}

class EigenPeer : public Peer {
 public:
  explicit EigenPeer(const Limits& limits) : isa_(limits.isa) {
    omp_set_num_threads(static_cast<int>(limits.threads));
  }

  std::string_view name() const override { return "eigen"; }
  Kind kind() const override { return Kind::sparse; }

  std::string version() const override {
    return fmt::format("Eigen {}.{}.{}, OpenMP, compiled for {}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION,
                       EIGEN_MINOR_VERSION, name_of(isa_));
  }

  std::string why_not(const Work& work) const override {
    if (work.type != Type::f32) return "FP32 only here";
    return forward_only(work);
  }

  std::unique_ptr<PreparedProduct> prepare(const Work& work) override {
    return std::make_unique<EigenCsr>(product_for(isa_), sparse::cover(work.weights, 1), work);
  }

 private:
  Isa isa_;
};

}  // namespace

std::unique_ptr<Peer> eigen(const Limits& limits) { return std::make_unique<EigenPeer>(limits); }

}  // namespace tessera::bench
