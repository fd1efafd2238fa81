// The products of sparse and dense weights on the host: Y = activation(alpha · W·X + beta · Y + bias),
// and the gradients dX = Wᵀ·dY and dW = alpha · (dY·Xᵀ at W's pattern) + beta · dW that complete a training
// step.
#pragma once

#include <tessera/types.h>
#include <tessera/weight.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace tessera {

/// Options that are fixed when a product is planned.
struct SpmmOptions {
  Layout x_layout = Layout::row_major;
  Layout y_layout = Layout::row_major;
  Activation activation = Activation::none;
  bool bias = false;
  /// Compute Wᵀ·X, as the input gradient dX = Wᵀ·dY requires: X is m × n, Y k × n, and a bias has k elements.
  /// Transposed products read the same packed values.
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
  const float* bias = nullptr;  ///< one element per row of Y, if SpmmOptions::bias is set
  /// Values in packed order, of the weight's type, to use instead of the weight's own values; required if the
  /// weight has none.
  const void* values = nullptr;
};

/// A product planned, built and compiled for the host: Y (m × n) = W (m × k) · X (k × n), or with
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

  /// Computes Y. Throws UsageError for a null array or a leading dimension that is too small.
  void operator()(const SpmmArguments& arguments) const;

  /// Computes Y for contiguous arrays, with alpha = 1 and beta = 0.
  void operator()(const float* x, float* y) const { (*this)(SpmmArguments{.x = x, .y = y}); }

  /// The plan in readable form: schedule, tiles used, predicted time.
  std::string plan() const;
  /// Predicted seconds of one call.
  double predicted_seconds() const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

/// Options that are fixed when the product is planned.
struct SddmmOptions {
  Layout dy_layout = Layout::row_major;
  Layout x_layout = Layout::row_major;
  uint32_t threads = 0;  ///< 0: one per physical core available to this process, or TESSERA_THREADS
  /// Schedule knobs that the planner must use.
  std::map<std::string, int64_t> force = {};
};

/// Arguments of one call. Leading dimensions are the strides that are not 1.
struct SddmmArguments {
  const float* dy = nullptr;  ///< m × n
  int64_t dy_leading = 0;     ///< 0: contiguous
  const float* x = nullptr;   ///< k × n
  int64_t x_leading = 0;      ///< 0: contiguous
  float* dw = nullptr;        ///< packed_size() elements
  float alpha = 1.0F;
  float beta = 0.0F;  ///< with 0, dW is not read; with 1, gradients accumulate over batches
};

/// A sampled dense-dense matrix product (SDDMM), dW = dY·Xᵀ at the pattern of W, planned, built and compiled
/// for the host. FP32, whatever the weight's type.
///
/// dW is in packed order, like the weight's own values, so that an optimizer can process values, gradient and
/// its state as arrays of equal length. Places without a stored element are set to 0. operator() may be
/// called from several threads at once; calls take turns with the process's thread pool. The bits of dW
/// depend on the plan and the instruction set, not on timing. dW must not overlap dY or X. A dynamic weight's
/// pattern must not change during a call; calls after a change use the new pattern.
class Sddmm {
 public:
  /// Plans for n columns. Throws UsageError for unknown knobs.
  Sddmm(const Weight& weight, uint32_t n, const SddmmOptions& options = {});

  /// Computes dW. Throws UsageError for a null array or a leading dimension that is too small.
  void operator()(const SddmmArguments& arguments) const;

  /// Computes dW for contiguous arrays, with alpha = 1 and beta = 0.
  void operator()(const float* dy, const float* x, float* dw) const {
    (*this)(SddmmArguments{.dy = dy, .x = x, .dw = dw});
  }

  /// Elements of dW.
  uint64_t packed_size() const;

  /// The plan in readable form: schedule, tiles used, predicted time.
  std::string plan() const;
  /// Predicted seconds of one call.
  double predicted_seconds() const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace tessera
