// Reductions over dimensions.
#include <tessera/vision.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "onnx/values.h"
#include "onnx/windows.h"

namespace tessera::onnx {
namespace {

using graph::Shape;
using graph::Value;

/// What is reduced, and how.
struct Reduction {
  explicit Reduction(Call& call)
      : x(call.value(0)), keeps(call.integer("keepdims", 1) != 0), type(call[0].type) {
    const auto axes = call.integers_of(1, "axes");
    for (const int64_t axis : axes.value_or(std::vector<int64_t>{}))
      dims.push_back(static_cast<int>(Call::dimension(axis, x.shape().size())));
    is_none = dims.empty() && call.integer("noop_with_empty_axes", 0) != 0;
    if (dims.empty() && !is_none)
      for (size_t d = 0; d < x.shape().size(); ++d) dims.push_back(static_cast<int>(d));
    std::ranges::sort(dims);
    is_none = is_none || dims.empty();
  }

  Results of(Value y) const { return {known(y, type)}; }

  Value x;
  std::vector<int> dims;
  bool keeps;
  DataType type;
  bool is_none = false;  ///< nothing is reduced
};

Reduction reduction_of_numbers(Call& call) {
  call.require_numbers();
  return Reduction(call);
}

Value total(const Reduction& r, Value x) { return r.is_none ? x : sum(x, r.dims, r.keeps); }

Results reduce_sum(Call& call) {
  const Reduction r = reduction_of_numbers(call);
  return r.of(total(r, r.x));
}

Results reduce_mean(Call& call) {
  const Reduction r = reduction_of_numbers(call);
  if (r.is_none) return r.of(r.x);
  const bool is_of_image = r.x.shape().size() == 4 && r.dims == std::vector<int>{2, 3};
  if (!is_of_image) return r.of(mean(r.x, r.dims, r.keeps));
  // With channels last, as in convolutions.
  const Value y = *channels_first(adaptive_average_pool(channels_last(r.x), {1}), r.type).value;
  return r.of(r.keeps ? y : reshape(y, {y.shape()[0], y.shape()[1]}));
}

Results reduce_max(Call& call) {
  const Reduction r(call);
  return r.of(r.is_none ? r.x : max(r.x, r.dims, r.keeps));
}

Results reduce_min(Call& call) {
  const Reduction r(call);
  return r.of(r.is_none ? r.x : min(r.x, r.dims, r.keeps));
}

Results reduce_l1(Call& call) {
  const Reduction r = reduction_of_numbers(call);
  return r.of(total(r, magnitude(r.x)));
}

Results reduce_l2(Call& call) {
  const Reduction r = reduction_of_numbers(call);
  return r.of(cast(sqrt(total(r, square(widened(r.x)))), r.x.type().type));
}

Results reduce_sum_of_squares(Call& call) {
  const Reduction r = reduction_of_numbers(call);
  return r.of(total(r, is_integer(r.x) ? r.x * r.x : square(r.x)));
}

Results reduce_log_sum(Call& call) {
  const Reduction r = reduction_of_numbers(call);
  return r.of(cast(log(total(r, widened(r.x))), r.x.type().type));
}

Results reduce_log_sum_of_exponentials(Call& call) {
  const Reduction r = reduction_of_numbers(call);
  if (r.is_none) return r.of(r.x);
  const Value x = widened(r.x);
  Value most = max(x, r.dims, true);
  const Value infinite = equal(abs(most), number_like(most, std::numeric_limits<double>::infinity()));
  most = where(infinite, number_like(most, 0), most);
  const Value logs = log(sum(exp(x - most), r.dims, true)) + most;
  return r.of(cast(r.keeps ? logs : sum(logs, r.dims, false), r.x.type().type));
}

Results reduce_product(Call& call) {
  const Reduction r = reduction_of_numbers(call);
  Value y = r.x;
  for (const int d : r.dims) y = product_over(y, static_cast<uint32_t>(d));
  if (r.is_none || r.keeps) return r.of(y);
  Shape shape;
  for (size_t d = 0; d < y.shape().size(); ++d)
    if (std::ranges::find(r.dims, static_cast<int>(d)) == r.dims.end()) shape.push_back(y.shape()[d]);
  return r.of(reshape(y, shape));
}

/// The position of the maximum or of the minimum.
Value place(Context& context, Value x, int dim, bool keeps, bool largest, bool last) {
  // Reverses the order of integers without overflow.
  if (!largest) x = is_integer(x) ? negative(x) - number_like(x, 1) : -x;
  if (!last) return cast(argmax(x, dim, keeps), Type::i32);
  const uint32_t size = x.shape()[static_cast<size_t>(dim)];
  context.spend(size);
  std::vector<int64_t> backwards(size);
  for (uint32_t i = 0; i < size; ++i) backwards[i] = size - 1 - i;
  const Value from_end = cast(argmax(taken(x, static_cast<size_t>(dim), backwards), dim, keeps), Type::i32);
  return number_like(from_end, size - 1) - from_end;
}

template <bool largest>
Results place(Call& call) {
  const Value x = call.value(0);
  const auto dim = static_cast<int>(call.axis(x.shape().size(), 0));
  const bool keeps = call.integer("keepdims", 1) != 0, last = call.integer("select_last_index", 0) != 0;
  return {known(place(call.context, x, dim, keeps, largest, last), DataType::i64)};
}

/// 1 at the first largest element, and 0 beside it.
Results hard_max(Call& call) {
  call.require_numbers();
  const Value x = call.value(0);
  const size_t dim = call.axis(x.shape().size(), -1);
  Shape shape(x.shape().size(), 1);
  shape[dim] = x.shape()[dim];
  call.context.spend(shape[dim]);
  std::vector<int64_t> places(shape[dim]);
  std::iota(places.begin(), places.end(), int64_t{0});
  const Value most = place(call.context, x, static_cast<int>(dim), true, true, false);
  const Value is_most = equal(whole_numbers(call.graph, places, shape, Type::i32), most);
  return {known(cast(is_most, x.type().type), call[0].type)};
}

Results softmax_of(Call& call) {
  call.require_numbers();
  const Value x = call.value(0);
  const size_t axis = call.axis(x.shape().size(), -1);
  const Value y = softmax(x, static_cast<int>(axis));
  const auto found = call.context.scores.find(x.id);
  if (axis + 1 == x.shape().size() && found != call.context.scores.end())
    call.context.probabilities.insert({y.id, found->second});
  return {known(y, call[0].type)};
}

Results log_softmax_of(Call& call) {
  call.require_numbers();
  const Value x = call.value(0);
  return {known(log_softmax(x, static_cast<int>(call.axis(x.shape().size(), -1))), call[0].type)};
}

Results lp_normalization(Call& call) {
  call.require_numbers();
  const Value given = call.value(0), x = widened(given);
  const auto dim = static_cast<int>(call.axis(x.shape().size(), -1));
  const int64_t p = call.integer("p", 2);
  if (p != 1 && p != 2) refuse("a norm of order {} is not possible", p);
  const Value norm = p == 1 ? sum(abs(x), {dim}, true) : sqrt(sum(square(x), {dim}, true));
  const Value none = equal(norm, number_like(norm, 0));
  const Value y = x / where(none, number_like(norm, 1), norm);
  return {known(cast(y, given.type().type), call[0].type)};
}

constexpr Operator kReductionsOperators[] = {{"ArgMax", place<true>},
                                             {"ArgMin", place<false>},
                                             {"Hardmax", hard_max},
                                             {"LogSoftmax", log_softmax_of},
                                             {"LpNormalization", lp_normalization},
                                             {"ReduceL1", reduce_l1, 2},
                                             {"ReduceL2", reduce_l2, 2},
                                             {"ReduceLogSum", reduce_log_sum, 2},
                                             {"ReduceLogSumExp", reduce_log_sum_of_exponentials, 2},
                                             {"ReduceMax", reduce_max, 2},
                                             {"ReduceMean", reduce_mean, 2},
                                             {"ReduceMin", reduce_min, 2},
                                             {"ReduceProd", reduce_product, 2},
                                             {"ReduceSum", reduce_sum, 2},
                                             {"ReduceSumSquare", reduce_sum_of_squares, 2},
                                             {"Softmax", softmax_of}};

}  // namespace

std::span<const Operator> reduction_operators() { return kReductionsOperators; }

}  // namespace tessera::onnx
