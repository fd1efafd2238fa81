// A QR factorisation with insertion and removal of columns.
#pragma once

#include <vector>

#include "packing/basis.h"

namespace tessera::pack {

/// Q · R of some columns, and Qᵀ · b of a right-hand side.
class Orthogonal {
 public:
  explicit Orthogonal(std::vector<double> b);

  size_t columns() const { return columns_; }

  /// Appends a column. False, without a change, if it depends on the existing ones.
  bool append(Column column);
  /// Removes the column at that position; later ones move up.
  void remove(size_t position);
  /// The coefficients with which the columns best approximate b.
  std::vector<double> solve() const;
  /// b minus its approximation.
  std::vector<double> residual() const;

 private:
  double* row(size_t i) { return transposed_.data() + i * size_; }
  const double* row(size_t i) const { return transposed_.data() + i * size_; }
  void rotate(size_t i, double cosine, double sine);

  size_t size_;
  size_t columns_ = 0;
  std::vector<double> transposed_;          // Qᵀ, size × size, row-major
  std::vector<std::vector<double>> upper_;  // columns of R, without the zeros below the diagonal
  std::vector<double> projected_;           // Qᵀ · b
};

}  // namespace tessera::pack
