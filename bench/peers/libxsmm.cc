// libxsmm 1.17: its unstructured product for matrices of any size (spmdm), spread over OpenMP
// threads.
//
// Left out: fsspmdm and the packed CSR and CSC kernels compile the pattern into instructions,
// which takes minutes from about 10^5 non-zeros on, or work on a packed batch format. Block-sparse
// kernels (BCSC) appeared in later versions.
#include <fmt/format.h>
#include <libxsmm.h>
#include <omp.h>

#include "peers/registry.h"

namespace tessera::bench {
namespace {

class SpmdmProduct : public PreparedProduct {
 public:
  SpmdmProduct(const Work& work, unsigned threads)
      : threads_(static_cast<int>(threads)), transposed_(work.layout == Layout::row_major ? 'N' : 'T') {
    libxsmm_spmdm_init(static_cast<int>(work.m()), static_cast<int>(work.n), static_cast<int>(work.k()),
                       threads_, &handle_, &slices_);
    const int blocks = libxsmm_spmdm_get_num_createSparseSlice_blocks(&handle_);
#pragma omp parallel for num_threads(threads_)
    for (int block = 0; block < blocks; ++block)
      libxsmm_spmdm_createSparseSlice_fp32_thread(&handle_, 'N', work.dense.data(), slices_, block,
                                                  omp_get_thread_num(), threads_);
  }
  ~SpmdmProduct() override { libxsmm_spmdm_destroy(&handle_); }
  SpmdmProduct(const SpmdmProduct&) = delete;
  SpmdmProduct& operator=(const SpmdmProduct&) = delete;

  void run(const Arrays& a) override {
    const float alpha = 1, beta = 0;
    const int blocks = libxsmm_spmdm_get_num_compute_blocks(&handle_);
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (int block = 0; block < blocks; ++block)
      libxsmm_spmdm_compute_fp32_thread(&handle_, 'N', transposed_, &alpha, slices_, a.x, transposed_, &beta,
                                        a.y, block, omp_get_thread_num(), threads_);
  }

 private:
  int threads_;
  char transposed_;
  libxsmm_spmdm_handle handle_;
  libxsmm_CSR_sparseslice* slices_ = nullptr;
};

int target_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
    case Isa::avx512_bf16:
    case Isa::avx512_bf16_sparse:
    case Isa::amx: return LIBXSMM_X86_AVX512_CORE;
    case Isa::avx2: return LIBXSMM_X86_AVX2;
    default: return LIBXSMM_X86_SSE3;
  }
}

class Libxsmm : public Peer {
 public:
  explicit Libxsmm(const Limits& limits) : threads_(limits.threads) {
    libxsmm_init();
    libxsmm_set_target_archid(target_of(limits.isa));
  }

  std::string_view name() const override { return "libxsmm"; }
  Kind kind() const override { return Kind::sparse; }

  std::string version() const override {
    return fmt::format("libxsmm {}, spmdm, target {}", LIBXSMM_VERSION, libxsmm_get_target_arch());
  }

  std::string why_not(const Work& work) const override {
    if (work.type != Type::f32) return "FP32 only";
    const Pattern& pattern = work.weights.pattern;
    if (pattern.blocks() == uint64_t{pattern.block_rows()} * pattern.block_cols())
      return "a full slice overflows its 16-bit row index";
    return forward_only(work);
  }

  std::unique_ptr<PreparedProduct> prepare(const Work& work) override {
    return std::make_unique<SpmdmProduct>(work, threads_);
  }

 private:
  unsigned threads_;
};

}  // namespace

std::unique_ptr<Peer> libxsmm(const Limits& limits) { return std::make_unique<Libxsmm>(limits); }

}  // namespace tessera::bench
