// The gradient of a weight: dW = alpha · (dY·Xᵀ at the weight's pattern) + beta · dW, a sampled
// dense product (SDDMM). What training needs beside Y = W·X and dX = Wᵀ·dY, for which see spmm.h.
#pragma once

#include <tessera/spmm.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace tessera {

/// What is fixed when a gradient is planned.
struct SddmmOptions {
  Layout dy_layout = Layout::row_major;
  Layout x_layout = Layout::row_major;
  uint32_t threads = 0;  ///< 0: one a physical core that this process may use, or TESSERA_THREADS
  /// Knobs of the cut that the planner must use.
  std::map<std::string, int64_t> force = {};
};

/// What one call brings. Strides beside the unit one are the leading dimensions.
struct SddmmArguments {
  const float* dy = nullptr;  ///< m × n
  int64_t dy_leading = 0;     ///< 0: without gaps
  const float* x = nullptr;   ///< k × n
  int64_t x_leading = 0;      ///< 0: without gaps
  float* dw = nullptr;        ///< packed_size() elements
  float alpha = 1.0F;
  float beta = 0.0F;  ///< with 0, dW is not read; with 1, the gradients of several batches add up
};

/// A gradient planned, built and compiled for this computer. FP32, whatever the weight's type.
///
/// dW is in the packed order, that of the weight's own array of values, so that an optimizer walks
/// over values, gradient and its state as arrays of equal length. Places that hold no stored
/// element are written 0. operator() may be called from several threads at once; calls take turns
/// with the process's pool of threads. The bits of dW depend on the plan and the instruction set,
/// not on timing. dW must not overlap dY or X. No change of a dynamic weight's pattern may run at
/// the same time; gradients follow such changes by themselves.
class Sddmm {
 public:
  /// Plans for n columns. Throws UsageError for knobs that do not exist.
  Sddmm(const Weight& weight, uint32_t n, const SddmmOptions& options = {});
  ~Sddmm();
  Sddmm(Sddmm&&) noexcept;
  Sddmm& operator=(Sddmm&&) noexcept;

  /// Computes dW. Throws UsageError for a null array or a leading dimension that is too small.
  void operator()(const SddmmArguments& arguments) const;

  /// The same without gaps and with alpha = 1, beta = 0.
  void operator()(const float* dy, const float* x, float* dw) const {
    (*this)(SddmmArguments{.dy = dy, .x = x, .dw = dw});
  }

  /// Elements of dW.
  uint64_t packed_size() const;

  /// The plan, for people: cut, tiles used, predicted time.
  std::string plan() const;
  /// Seconds of one call as the plan predicts them.
  double predicted_seconds() const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace tessera
