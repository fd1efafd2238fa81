// Reference elements of each product in double precision, to check all libraries.
#pragma once

#include <tessera/sparse.h>

#include <span>
#include <vector>

#include "spmm/compare.h"

namespace tessera::bench {

class Reference {
 public:
  /// Computes sampled rows and columns, including the last ones, of the task's results and of Y. X and dY are
  /// in the layout of the work.
  Reference(const SparseMatrix& weights, const Case& work, std::span<const float> x,
            std::span<const float> dy);

  /// Largest |result - reference| ÷ the sum of the magnitudes of its terms, over the sampled elements of the
  /// task's results; infinite if one is NaN. `gradient` is dW at the stored elements, in their order.
  double largest_error(Task task, std::span<const float> y, std::span<const float> dx,
                       std::span<const float> gradient) const;

 private:
  struct Element {
    size_t index;  ///< position in the result
    double value = 0;
    double magnitude = 0;  ///< sum of the magnitudes of its terms

    void add(double term);
  };
  using Elements = std::vector<Element>;

  static double largest_error(const Elements& elements, std::span<const float> results);

  Elements y_, dx_, gradient_;
};

}  // namespace tessera::bench
