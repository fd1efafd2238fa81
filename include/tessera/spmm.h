// Sparse and dense weights times dense activations: Y = activation(alpha · W·X + beta · Y + bias).
#pragma once

#include <tessera/types.h>
#include <tessera/weight.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace tessera {

/// Memory order of an activation matrix.
enum class Layout : uint8_t {
  row_major,     ///< element (i, j) at [i · leading + j]
  column_major,  ///< element (i, j) at [i + j · leading]; a framework's batch-major activations
};

/// What is fixed when a product is planned.
struct SpmmOptions {
  Layout x_layout = Layout::row_major;
  Layout y_layout = Layout::row_major;
  Activation activation = Activation::none;
  bool bias = false;
  /// Compute Wᵀ·X, as the input gradient dX = Wᵀ·dY requires: X is m × n, Y k × n, and a bias has k elements.
  /// It reads the same values.
  bool transpose = false;
  uint32_t threads = 0;  ///< 0: one per physical core available to this process, or TESSERA_THREADS
  /// Schedule knobs that the planner must use, as for `tessera spmm --plan`.
  std::map<std::string, int64_t> force = {};
};

/// Arguments of one call. Leading dimensions are the strides that are not 1.
struct SpmmArguments {
  const float* x = nullptr;
  int64_t x_leading = 0;  ///< 0: contiguous
  float* y = nullptr;
  int64_t y_leading = 0;  ///< 0: contiguous
  float alpha = 1.0F;
  float beta = 0.0F;            ///< with 0, Y is not read
  const float* bias = nullptr;  ///< as many elements as Y has rows, if SpmmOptions::bias is set
  /// Values in packed order, of the weight's type, instead of its own; required if it has none.
  const void* values = nullptr;
};

/// A product planned, built and compiled for this computer: Y (m × n) = W (m × k) · X (k × n), or with
/// SpmmOptions::transpose Y (k × n) = Wᵀ · X (m × n).
///
/// It uses the current state of its weight: values, and the pattern of a dynamic weight, may change between
/// calls, but not during one.
///
/// operator() may be called from several threads at once; calls take turns with the process's thread pool.
/// The bits of Y depend on the plan and the instruction set, not on timing. X and Y must not overlap.
class Spmm {
 public:
  /// Plans for n columns. Throws UsageError for options that conflict with each other or with the weight.
  Spmm(const Weight& weight, uint32_t n, const SpmmOptions& options = {});
  ~Spmm();
  Spmm(Spmm&&) noexcept;
  Spmm& operator=(Spmm&&) noexcept;

  /// Computes Y. Throws UsageError for a null array or a leading dimension that is too small.
  void operator()(const SpmmArguments& arguments) const;

  /// The same for contiguous arrays, with alpha = 1 and beta = 0.
  void operator()(const float* x, float* y) const { (*this)(SpmmArguments{.x = x, .y = y}); }

  /// The plan in readable form: schedule, tiles used, predicted time.
  std::string plan() const;
  /// Predicted seconds of one call.
  double predicted_seconds() const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace tessera
