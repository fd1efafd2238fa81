// The weight gradient: dW = alpha · (dY·Xᵀ at the weight's pattern) + beta · dW, a sampled dense-dense matrix
// product (SDDMM). With Y = W·X and dX = Wᵀ·dY (spmm.h) it completes a training step.
#pragma once

#include <tessera/spmm.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace tessera {

/// What is fixed when the product is planned.
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

/// A weight gradient planned, built and compiled for this computer. FP32, whatever the weight's type.
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
  ~Sddmm();
  Sddmm(Sddmm&&) noexcept;
  Sddmm& operator=(Sddmm&&) noexcept;

  /// Computes dW. Throws UsageError for a null array or a leading dimension that is too small.
  void operator()(const SddmmArguments& arguments) const;

  /// The same for contiguous arrays, with alpha = 1 and beta = 0.
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
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace tessera
