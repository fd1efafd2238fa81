// Sparse and dense weights times dense activations: Y = activation(alpha · W·X + beta · Y + bias).
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace tessera {

/// A weight matrix prepared for the kernels, once for every n: its values in one packed array, the
/// master copy, with indices on top. Copies share the storage.
///
/// Preparing costs a pass or two over the non-zeros; products made from a weight keep its storage
/// alive. Values may be replaced at any time at which no product runs.
class Weight {
 public:
  /// Prepares a sparse matrix of block size 1, 4, 8, 16 or 32, its values rounded to `type` (f32,
  /// f16 or bf16). Throws UsageError for another type or block size, and Error for a malformed
  /// pattern.
  explicit Weight(const SparseMatrix& matrix, Type type = Type::f32);

  /// Prepares an m × k dense matrix: a pattern in which every block is stored.
  static Weight dense(MatrixView<const float> values, uint32_t m, uint32_t k, Type type = Type::f32);

  uint32_t rows() const;        ///< m
  uint32_t cols() const;        ///< k
  uint32_t block_size() const;  ///< b; of a dense weight, that of its kernel
  Type type() const;
  bool is_dense() const;
  uint64_t non_zeros() const;  ///< stored values inside the matrix
  uint64_t bytes() const;      ///< of the packed form, values and indices

  /// Replaces all values, in the order of SparseMatrix::values; of a dense weight, row-major. One
  /// pass. Throws UsageError where their number differs.
  void set_values(std::span<const float> values);
  /// Writes the values in that order. One pass.
  void get_values(std::span<float> values) const;

  struct Storage;
  const std::shared_ptr<Storage>& storage() const { return storage_; }

 private:
  explicit Weight(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {}

  std::shared_ptr<Storage> storage_;
};

/// Order of the elements of an activation matrix in memory.
enum class Layout : uint8_t {
  row_major,     ///< element (i, j) at [i · leading + j]
  column_major,  ///< element (i, j) at [i + j · leading], a framework's batch-major activations
};

/// What is fixed when a product is planned.
struct SpmmOptions {
  Layout x_layout = Layout::row_major;
  Layout y_layout = Layout::row_major;
  Activation activation = Activation::none;
  bool bias = false;
  uint32_t threads = 0;  ///< 0: one a physical core that this process may use, or TESSERA_THREADS
  /// Knobs of the cut that the planner must use, as `tessera spmm --plan` takes them.
  std::map<std::string, int64_t> force = {};
};

/// What one call brings. Strides beside the unit one are the leading dimensions.
struct SpmmArguments {
  const float* x = nullptr;
  int64_t x_leading = 0;  ///< 0: without gaps
  float* y = nullptr;
  int64_t y_leading = 0;  ///< 0: without gaps
  float alpha = 1.0F;
  float beta = 0.0F;  ///< with 0, Y is not read
  const float* bias = nullptr;  ///< m elements, where SpmmOptions::bias is set
};

/// A product planned, built and compiled for this computer: Y (m × n) = W (m × k) · X (k × n).
///
/// operator() may be called from several threads at once; calls take turns with the process's pool
/// of threads. The bits of Y depend on the plan and the instruction set, not on timing. X and Y
/// must not overlap.
class Spmm {
 public:
  /// Plans for n columns. Throws UsageError for options that contradict one another or the weight.
  Spmm(const Weight& weight, uint32_t n, const SpmmOptions& options = {});
  ~Spmm();
  Spmm(Spmm&&) noexcept;
  Spmm& operator=(Spmm&&) noexcept;

  /// Computes Y. Throws UsageError for a null array or a leading dimension that is too small.
  void operator()(const SpmmArguments& arguments) const;

  /// The same without gaps and with alpha = 1, beta = 0.
  void operator()(const float* x, float* y) const { (*this)(SpmmArguments{.x = x, .y = y}); }

  /// The plan, for people: cut, tiles used, predicted time.
  std::string plan() const;
  /// Seconds of one call as the plan predicts them.
  double predicted_seconds() const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace tessera
