#include "graph/dims.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <algorithm>
#include <numeric>

namespace tessera::graph {

std::vector<uint64_t> steps_of(const Shape& shape) {
  std::vector<uint64_t> steps(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) steps[d - 1] = steps[d] * shape[d];
  return steps;
}

size_t dimension_of(std::string_view operation, const TensorType& type, int64_t dim) {
  const auto count = static_cast<int64_t>(type.shape.size());
  if (dim < -count || dim >= count)
    throw UsageError(fmt::format("{}: {} has no dimension {}", operation, to_string(type), dim));
  return static_cast<size_t>(dim < 0 ? dim + count : dim);
}

std::vector<size_t> dimensions_of(std::string_view operation, const TensorType& type,
                                  const std::vector<int>& dims) {
  std::vector<size_t> found;
  for (int dim : dims) found.push_back(dimension_of(operation, type, dim));
  std::ranges::sort(found);
  if (std::ranges::adjacent_find(found) != found.end())
    throw UsageError(fmt::format("{}: the dimensions [{}] name one twice", operation, fmt::join(dims, ", ")));
  if (found.empty())
    for (size_t d = 0; d < type.shape.size(); ++d) found.push_back(d);
  return found;
}

Value moved(Value x, size_t from, size_t to) {
  std::vector<int> order(x.shape().size());
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + static_cast<int64_t>(from));
  order.insert(order.begin() + static_cast<int64_t>(to), static_cast<int>(from));
  return permute(x, order);
}

Value with_transposed_matrices(Value x) {
  const size_t last = x.shape().size() - 1;
  return moved(x, last, last - 1);
}

}  // namespace tessera::graph
