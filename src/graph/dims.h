// Dimensions of values, and arrays that are read along them.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera::graph {

/// Positions of the elements of an array, counted row by row, in another one.
struct ArrayIndex {
  Shape sizes;
  std::vector<uint64_t> steps;  ///< by dimension: how far apart neighbours are

  uint64_t operator()(uint64_t i) const {
    uint64_t index = 0;
    for (size_t d = sizes.size(); d-- > 0;) {
      index += i % sizes[d] * steps[d];
      i /= sizes[d];
    }
    return index;
  }
};

/// Of an array row by row.
std::vector<uint64_t> steps_of(const Shape& shape);

/// A dimension, which may be counted from the end. Throws UsageError, naming the operation, if there is none.
size_t dimension_of(std::string_view operation, const TensorType& type, int64_t dim);
/// Several, ascending; none are all. Throws UsageError also for one that is named twice.
std::vector<size_t> dimensions_of(std::string_view operation, const TensorType& type,
                                  const std::vector<int>& dims);

/// A dimension moved to another place.
Value moved(Value x, size_t from, size_t to);

}  // namespace tessera::graph
