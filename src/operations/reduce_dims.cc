// Reductions over any dimensions, composed of reductions over columns or rows of a matrix.
#include <algorithm>

#include "base/integer_types.h"
#include "graph/dims.h"
#include "operations/constants.h"

namespace tessera::graph {
namespace {

using Dims = std::vector<size_t>;

bool contains(const Dims& dims, size_t d) { return std::ranges::find(dims, d) != dims.end(); }

Value reduce(const char* operation, Value x, const char* over, double scale = 1) {
  Attributes attributes = {{"over", over}};
  if (scale != 1) attributes["scale"] = scale;
  return x.owner().apply(operation, {x}, std::move(attributes))[0];
}

uint32_t product(const Shape& shape, const Dims& dims) {
  uint32_t elements = 1;
  for (size_t d : dims) elements *= shape[d];
  return elements;
}

Value permuted(Value x, const Dims& first, const Dims& second, const Dims& third) {
  std::vector<int> order;
  for (const Dims* dims : {&first, &second, &third}) order.insert(order.end(), dims->begin(), dims->end());
  return permute(x, order);
}

/// Adds neighbouring rows where they lie.
Value sum_of_rows(Value matrix, uint32_t neighbours, double scale) {
  const Value y = transpose(sum_neighbours(transpose(matrix), neighbours));
  return scale == 1 ? y : y * scale;
}

/// Reduces over dimensions, which are ascending; the shape of the result is unspecified.
Value reduce_over(const char* operation, Value x, const Dims& dims, double scale) {
  const Shape& shape = x.shape();
  const auto stays = [&](size_t d) { return !contains(dims, d) && shape[d] != 1; };
  Dims kept;
  bool any_stays = false;
  for (size_t d = 0; d + 1 < shape.size(); ++d) {
    any_stays |= stays(d);
    if (!contains(dims, d)) kept.push_back(d);
  }
  if (shape.empty() || (!any_stays && !stays(shape.size() - 1))) return reduce(operation, x, "all", scale);
  const size_t last = shape.size() - 1;
  // In one step, so that all largest elements share the gradient equally.
  if (operation == std::string_view("max") && contains(dims, last) && dims.size() > 1)
    return reduce(operation,
                  reshape(permuted(x, kept, dims, {}), {product(shape, kept), product(shape, dims)}),
                  "columns", scale);
  if (contains(dims, last)) {
    const Value y = reduce(operation, x, "columns", scale);
    if (dims.size() == 1) return y;
    return reduce_over(operation, reshape(y, Shape(shape.begin(), shape.end() - 1)),
                       Dims(dims.begin(), dims.end() - 1), 1);
  }
  if (!any_stays) return reduce(operation, x, "rows", scale);
  const uint32_t rows = product(shape, kept), count = product(shape, dims), cols = shape[last];
  if (operation == std::string_view("sum") && cols > 1 && !is_integer(x.type().type))
    return sum_of_rows(reshape(permuted(x, kept, dims, {last}), {rows * count, cols}), count, scale);
  return reduce(operation, reshape(permuted(x, kept, {last}, dims), {rows * cols, count}), "columns", scale);
}

Value reduce(const char* name, const char* operation, Value x, const std::vector<int>& dims, bool keepdim,
             bool is_mean = false) {
  const Shape& shape = x.shape();
  const Dims reduced = dimensions_of(name, x.type(), dims);
  Shape result;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!contains(reduced, d))
      result.push_back(shape[d]);
    else if (keepdim)
      result.push_back(1);
  }
  // Sums of 16-bit values in several steps are rounded, and overflow, only at the end.
  const Type type = x.type().type;
  const bool is_sum = operation == std::string_view("sum");
  if (is_sum && size_of(type) == 2 && (is_mean || reduced.size() > 1)) x = cast(x, Type::f32);
  const Value y = reduce_over(operation, x, reduced, is_mean ? 1.0 / product(shape, reduced) : 1);
  return reshape(cast(y, type), result);
}

/// In the reverse order; of integers without overflow.
Value reversed(Value x) { return is_integer(x.type().type) ? -x - number(x, 1) : -x; }

}  // namespace

Value sum(Value x) { return reduce("sum", x, "all"); }
Value sum(Value x, const std::vector<int>& dims, bool keepdim) {
  return reduce("sum", "sum", x, dims, keepdim);
}
Value mean(Value x) { return reduce("sum", x, "all", 1 / static_cast<double>(x.type().elements())); }
Value mean(Value x, const std::vector<int>& dims, bool keepdim) {
  return reduce("mean", "sum", x, dims, keepdim, true);
}
Value max(Value x) { return reduce("max", x, "all"); }
Value max(Value x, const std::vector<int>& dims, bool keepdim) {
  return reduce("max", "max", x, dims, keepdim);
}
Value min(Value x) { return reversed(max(reversed(x))); }
Value min(Value x, const std::vector<int>& dims, bool keepdim) {
  return reversed(max(reversed(x), dims, keepdim));
}

}  // namespace tessera::graph
