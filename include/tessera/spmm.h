// Sparse and dense weights times dense activations: Y = activation(alpha · W·X + beta · Y + bias).
#pragma once

#include <tessera/types.h>
#include <tessera/weight.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace tessera {

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
  /// The product is Wᵀ·X, as the gradient dX = Wᵀ·dY needs it: X is m × n, Y k × n, and a bias has k
  /// elements. It reads the same values.
  bool transpose = false;
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
  float beta = 0.0F;            ///< with 0, Y is not read
  const float* bias = nullptr;  ///< as many elements as Y has rows, where SpmmOptions::bias is set
};

/// A product planned, built and compiled for this computer: Y (m × n) = W (m × k) · X (k × n), or
/// with SpmmOptions::transpose Y (k × n) = Wᵀ · X (m × n).
///
/// It follows its weight: values, and of a dynamic weight the pattern, may change between calls. What
/// it reads of a weight must not change during one.
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
