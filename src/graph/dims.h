// Dimensions of values, and positions of elements along them.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::graph {

/// Maps the elements of an array, counted row by row, to positions in another array.
struct ArrayIndex {
  Shape sizes;
  std::vector<uint64_t> steps;  ///< stride in the other array, by dimension

  uint64_t operator()(uint64_t i) const {
    uint64_t index = 0;
    for (size_t d = sizes.size(); d-- > 0;) {
      index += i % sizes[d] * steps[d];
      i /= sizes[d];
    }
    return index;
  }
};

/// The strides of a row-major array.
std::vector<uint64_t> steps_of(const Shape& shape);

/// The index of a dimension; a negative `dim` counts from the end. Throws UsageError, naming the operation,
/// if there is no such dimension.
size_t dimension_of(std::string_view operation, const TensorType& type, int64_t dim);
/// The indices of several dimensions, ascending; no `dims` stand for all. Also throws UsageError for a
/// dimension named twice.
std::vector<size_t> dimensions_of(std::string_view operation, const TensorType& type,
                                  const std::vector<int>& dims);

/// Moves a dimension of x from index `from` to index `to`.
Value moved(Value x, size_t from, size_t to);
/// Transposes the matrices of the last two dimensions.
Value with_transposed_matrices(Value x);

}  // namespace tessera::graph
