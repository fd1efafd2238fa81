// MKL: dense sgemm and sgemv, and the inspector-executor sparse products of CSR and BSR.
//
// The library is opened at run time, so its few prototypes and constants stand here; they have
// been part of its binary interface since the inspector-executor API appeared.
#include <fmt/format.h>
#include <tessera/error.h>

#include <cstdlib>
#include <filesystem>

#include "peers/blas.h"
#include "peers/library.h"
#include "peers/registry.h"
#include "sparse/pattern.h"

namespace tessera::bench {
namespace {

constexpr int kOperationNonTranspose = 10;
constexpr int kIndexBaseZero = 0;
constexpr int kMatrixGeneral = 20;
constexpr int kFillLower = 40;
constexpr int kDiagonalNonUnit = 50;
constexpr int kLayoutRowMajor = 101;
constexpr int kLayoutColumnMajor = 102;
constexpr int kSuccess = 0;
/// Number of products over which MKL may amortise its preparation.
constexpr int kExpectedCalls = 1000;

struct MatrixDescription {
  int type = kMatrixGeneral, fill = kFillLower, diagonal = kDiagonalNonUnit;
};
using Handle = void*;

std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  const char* const roots[] = {std::getenv("MKLROOT"), TESSERA_MKL_ROOT};
  for (const char* root : roots)
    for (const char* name : {"libmkl_rt.so.3", "libmkl_rt.so.2"})
      if (root != nullptr && *root != '\0')
        paths.push_back((std::filesystem::path(root) / "lib" / name).string());
  paths.insert(paths.end(), {"libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so"});
  return paths;
}

const char* instructions(Isa isa) {
  switch (isa) {
    case Isa::avx512:
    case Isa::avx512_bf16:
    case Isa::avx512_bf16_sparse:
    case Isa::amx: return "AVX512";
    case Isa::avx2: return "AVX2";
    default: return "SSE4_2";
  }
}

const Library& library(const Limits& limits) {
  static const Library opened = [&] {
    setenv("MKL_ENABLE_INSTRUCTIONS", instructions(limits.isa), 1);
    setenv("MKL_NUM_THREADS", std::to_string(limits.threads).c_str(), 1);
    setenv("MKL_DYNAMIC", "FALSE", 1);
    setenv("MKL_INTERFACE_LAYER", "LP64", 1);
    // The OpenMP runtime that the other peers use: a second one would spin concurrently.
    default_environment("MKL_THREADING_LAYER", "GNU");
    return Library(candidates());
  }();
  return opened;
}

std::string mkl_version(const Library& opened) {
  char text[256] = {};
  opened.function<void(char*, int)>("mkl_get_version_string")(text, sizeof(text) - 1);
  std::string version = text;
  version.erase(version.find_last_not_of(' ') + 1);
  return version;
}

class MklDense : public Peer {
 public:
  explicit MklDense(const Limits& limits) : library_(library(limits)) {}

  std::string_view name() const override { return "mkl"; }
  Kind kind() const override { return Kind::dense; }
  std::string version() const override { return mkl_version(library_); }
  std::string why_not(const Work&) const override { return {}; }

  std::unique_ptr<PreparedProduct> prepare(const Work& work) override {
    return blas_product(library_.function<Sgemm>("cblas_sgemm"), library_.function<Sgemv>("cblas_sgemv"),
                        work);
  }

 private:
  const Library& library_;
};

/// Weights in MKL's form: b = 1 as CSR, else as BSR.
class MklSparseProduct : public PreparedProduct {
 public:
  MklSparseProduct(const Library& opened, const SparseMatrix& weights, const Work& work)
      : values_(weights.values),
        columns_(weights.pattern.col_indices.begin(), weights.pattern.col_indices.end()),
        rows_(weights.pattern.crow_indices.begin(), weights.pattern.crow_indices.end()),
        mm_(opened.function<Mm>("mkl_sparse_s_mm")),
        mv_(opened.function<Mv>("mkl_sparse_s_mv")),
        destroy_(opened.function<int(Handle)>("mkl_sparse_destroy")),
        n_(static_cast<int>(work.n)),
        layout_(work.layout == Layout::row_major ? kLayoutRowMajor : kLayoutColumnMajor),
        x_leading_(work.layout == Layout::row_major ? n_ : static_cast<int>(work.k())),
        y_leading_(work.layout == Layout::row_major ? n_ : static_cast<int>(work.m())) {
    create(opened, weights.pattern);
    give_hints(opened);
    check(opened.function<int(Handle)>("mkl_sparse_optimize")(handle_), "mkl_sparse_optimize");
  }
  ~MklSparseProduct() override { destroy_(handle_); }
  MklSparseProduct(const MklSparseProduct&) = delete;
  MklSparseProduct& operator=(const MklSparseProduct&) = delete;

  void run(const Arrays& a) override {
    if (n_ == 1)
      check(mv_(kOperationNonTranspose, 1, handle_, {}, a.x, 0, a.y), "mkl_sparse_s_mv");
    else
      check(mm_(kOperationNonTranspose, 1, handle_, {}, layout_, a.x, n_, x_leading_, 0, a.y, y_leading_),
            "mkl_sparse_s_mm");
  }

  uint64_t weight_bytes() const override {
    return sizeof(float) * values_.size() + sizeof(int) * (columns_.size() + rows_.size());
  }

 private:
  using Mm = int(int operation, float alpha, Handle a, MatrixDescription, int layout, const float* x,
                 int columns, int ldx, float beta, float* y, int ldy);
  using Mv = int(int operation, float alpha, Handle a, MatrixDescription, const float* x, float beta,
                 float* y);
  using CreateCsr = int(Handle*, int base, int rows, int cols, int* begin, int* end, int* columns,
                        float* values);
  using CreateBsr = int(Handle*, int base, int block_layout, int rows, int cols, int block, int* begin,
                        int* end, int* columns, float* values);

  static void check(int status, const char* call) {
    if (status != kSuccess) throw Error(fmt::format("{} returned status {}", call, status));
  }

  void create(const Library& opened, const Pattern& pattern) {
    const int rows = static_cast<int>(pattern.block_rows());
    const int cols = static_cast<int>(pattern.block_cols());
    const int block = static_cast<int>(pattern.block_size);
    if (block == 1)
      check(opened.function<CreateCsr>("mkl_sparse_s_create_csr")(&handle_, kIndexBaseZero, rows, cols,
                                                                  rows_.data(), rows_.data() + 1,
                                                                  columns_.data(), values_.data()),
            "mkl_sparse_s_create_csr");
    else
      check(opened.function<CreateBsr>("mkl_sparse_s_create_bsr")(
                &handle_, kIndexBaseZero, kLayoutRowMajor, rows, cols, block, rows_.data(), rows_.data() + 1,
                columns_.data(), values_.data()),
            "mkl_sparse_s_create_bsr");
  }

  /// Hints are advice: a format without an optimised variant rejects them, and runs all the same.
  void give_hints(const Library& opened) {
    if (n_ == 1)
      opened.function<int(Handle, int, MatrixDescription, int)>("mkl_sparse_set_mv_hint")(
          handle_, kOperationNonTranspose, {}, kExpectedCalls);
    else
      opened.function<int(Handle, int, MatrixDescription, int, int, int)>("mkl_sparse_set_mm_hint")(
          handle_, kOperationNonTranspose, {}, layout_, n_, kExpectedCalls);
  }

  std::vector<float> values_;
  std::vector<int> columns_, rows_;
  Mm* mm_;
  Mv* mv_;
  int (*destroy_)(Handle);
  int n_, layout_, x_leading_, y_leading_;
  Handle handle_ = nullptr;
};

class MklSparse : public Peer {
 public:
  MklSparse(const Limits& limits, bool blocks) : library_(library(limits)), blocks_(blocks) {}

  std::string_view name() const override { return blocks_ ? "mkl-bsr" : "mkl-csr"; }
  Kind kind() const override { return Kind::sparse; }
  std::string version() const override { return mkl_version(library_); }

  std::string why_not(const Work& work) const override {
    if (work.type != Type::f32) return "FP32 only";
    if (work.task != Task::forward) return forward_only(work);
    const Pattern& pattern = work.weights.pattern;
    if (pattern.blocks() * pattern.block_size * pattern.block_size > INT32_MAX)
      return "more than 2^31 non-zeros need its 64-bit interface";
    if (!blocks_) return {};
    if (pattern.block_size == 1) return "blocks of 1 are CSR";
    if (pattern.rows % pattern.block_size != 0 || pattern.cols % pattern.block_size != 0)
      return "blocks must divide the matrix";
    return {};
  }

  std::unique_ptr<PreparedProduct> prepare(const Work& work) override {
    if (blocks_ || work.weights.pattern.block_size == 1)
      return std::make_unique<MklSparseProduct>(library_, work.weights, work);
    return std::make_unique<MklSparseProduct>(library_, sparse::cover(work.weights, 1), work);
  }

 private:
  const Library& library_;
  bool blocks_;
};

}  // namespace

std::unique_ptr<Peer> mkl(const Limits& limits) { return std::make_unique<MklDense>(limits); }
std::unique_ptr<Peer> mkl_csr(const Limits& limits) {
  return std::make_unique<MklSparse>(limits, /*blocks=*/false);
}
std::unique_ptr<Peer> mkl_bsr(const Limits& limits) {
  return std::make_unique<MklSparse>(limits, /*blocks=*/true);
}

}  // namespace tessera::bench
