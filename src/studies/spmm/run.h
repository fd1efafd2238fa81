// Common steps of running a case on any machine: activations, medians, estimates, verification.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <vector>

#include "bound/product.h"
#include "studies/spmm/case.h"
#include "studies/spmm/request.h"

namespace tessera::studies::spmm {

/// An activation matrix in memory. Throws Error if it would not fit.
struct Activations {
  Activations(uint32_t height, uint32_t width, Layout order);

  int64_t row_stride() const { return layout == Layout::row_major ? cols : 1; }
  int64_t col_stride() const { return layout == Layout::row_major ? 1 : rows; }
  MatrixView<const float> view() const { return {elements.data(), row_stride(), col_stride()}; }

  uint32_t rows;
  uint32_t cols;
  Layout layout;
  std::vector<float> elements;
};

/// The result of a case as far as it is known before the case runs.
SpmmResult start(const bound::BoundProduct& product, const SpmmRequest& request);

/// Estimates the product without floating-point work.
void estimate(const bound::BoundProduct& product, SpmmResult& result);

/// Types to which numbers are rounded.
struct Rounding {
  Type weights;
  Type partials;
  Type result;
  uint32_t roundings = 1;  ///< maximum number of roundings of one partial sum
};

/// Compares Y with W·X in float64, to the requested extent.
void verify(const SpmmRequest& request, const SparseMatrix& matrix, const Rounding& types,
            const Activations& x, const Activations& y, SpmmResult& result);

/// Compares dW with dY·Xᵀ at its pattern.
void verify_sddmm(const SpmmRequest& request, const SparseMatrix& dw, const Rounding& types,
                  const Activations& x, const Activations& dy, SpmmResult& result);

}  // namespace tessera::studies::spmm
