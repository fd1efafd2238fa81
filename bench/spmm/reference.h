// Some elements of Y = W·X in double precision, to see that everybody computed the same.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <vector>

#include "spmm/compare.h"

namespace tessera::bench {

class Reference {
 public:
  /// Computes sampled rows and columns, the last ones included. X is in the layout of the work.
  Reference(const SparseMatrix& weights, const Case& work, const std::vector<float>& x);

  /// Largest |y - reference| / (|W|·|X|) of the sampled elements; infinite where one is NaN.
  double largest_error(const std::vector<float>& y) const;

 private:
  struct Element {
    size_t index;  ///< in Y
    double value;
    double magnitude;  ///< |W|·|X|
  };
  std::vector<Element> elements_;
};

}  // namespace tessera::bench
