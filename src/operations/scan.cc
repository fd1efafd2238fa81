// Running sums, and the positions of maxima: defined by other operations.
#include <fmt/format.h>
#include <tessera/error.h>

#include "base/integer_types.h"
#include "graph/dims.h"
#include "operations/constants.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

size_t dimension_of(const Signature& s) {
  return dimension_of(s.operation, s.inputs[0], s.attributes.integer("dim"));
}

Types infer_cumsum(const Signature& s) {
  require_dense(s);
  require_number(s, s.inputs[0]);
  dimension_of(s);
  return {s.inputs[0]};
}

/// Each step doubles the number of summed elements.
std::vector<Value> decompose_cumsum(const Decomposition& d) {
  const Type type = d.inputs[0].type().type;
  Value y = is_integer(type) ? d.inputs[0] : cast(d.inputs[0], Type::f32);
  const auto dim = static_cast<uint32_t>(dimension_of("cumsum", y.type(), d.node.integer("dim")));
  const uint32_t size = y.shape()[dim];
  if (size == 1) return {maximum(d.inputs[0], d.inputs[0])};
  for (uint32_t step = 1; step < size; step *= 2) y = y + pad(slice(y, dim, 0, size - step), dim, step, 0);
  return {cast(y, type)};
}

std::vector<Case> cumsum_cases() {
  const auto use = [](Type type, Shape shape, int64_t dim) {
    return Case{.inputs = {{type, std::move(shape), {}, {}}},
                .attributes = {{"dim", dim}},
                .below = 9,
                .differentiable = !is_integer(type)};
  };
  return {use(Type::f32, {3, 4, 13}, 2), use(Type::f32, {3, 4, 5}, 1), use(Type::f16, {6, 5}, 0),
          use(Type::bf16, {5, 9}, 1),    use(Type::u32, {4, 10}, -1),  use(Type::i32, {4, 10}, 0),
          use(Type::f32, {4, 1}, 1)};
}

/// argmax is along the last dimension.
Types infer_argmax(const Signature& s) {
  require_dense(s);
  TensorType out = s.inputs[0];
  require_number(s, out);
  constexpr uint32_t kMost = 1 << 24;  // which FP32 counts exactly
  if (out.shape.empty() || out.cols() > kMost)
    throw UsageError(
        fmt::format("{}: x is {}; it must be [..., features] of at most 2^24", s.operation, to_string(out)));
  out.type = Type::u32;
  out.shape.back() = 1;
  return {out};
}

/// The smallest position that holds the maximum, or NaN.
std::vector<Value> decompose_argmax(const Decomposition& d) {
  const bool of_integers = is_integer(d.inputs[0].type().type);
  const Value x = of_integers ? d.inputs[0] : cast(d.inputs[0], Type::f32);
  Value is_most = equal(x, max(x, {-1}, true));
  if (!of_integers) is_most = maximum(is_most, not_equal(x, x));
  const Value places = count_to(x.owner(), x.type().cols(), Type::f32);
  const Value found = where(is_most, places, number(places, x.type().cols()));
  return {cast(min(found, {-1}, true), Type::u32)};
}

std::vector<Case> argmax_cases() {
  const auto use = [](Type type, Shape shape) {
    return Case{.inputs = {{type, std::move(shape), {}, {}}}, .below = 7, .differentiable = false};
  };
  return {use(Type::f32, {3, 4, 13}), use(Type::f16, {6, 5}), use(Type::bf16, {9}), use(Type::i32, {6, 5})};
}

constexpr char kDim[] = "dim";

constexpr Operation kScan[] = {{.name = "cumsum",
                                .infer = infer_cumsum,
                                .cases = cumsum_cases,
                                .traits = {.keeps_samples = keeps_samples_unless_first<kDim>},
                                .decompose = decompose_cumsum},
                               {.name = "argmax",
                                .infer = infer_argmax,
                                .cases = argmax_cases,
                                .traits = {.keeps_samples = rows_keep_samples, .zero_derivative = true},
                                .decompose = decompose_argmax}};

}  // namespace

std::span<const Operation> scan_operations() { return kScan; }

Value cumsum(Value x, int dim) {
  return x.owner().apply("cumsum", {x},
                         {{"dim", static_cast<int64_t>(dimension_of("cumsum", x.type(), dim))}})[0];
}

Value argmax(Value x, int dim, bool keepdim) {
  const size_t at = dimension_of("argmax", x.type(), dim);
  Shape shape = x.shape();
  shape[at] = 1;
  if (!keepdim) shape.erase(shape.begin() + static_cast<int64_t>(at));
  return reshape(x.owner().apply("argmax", {moved(x, at, x.shape().size() - 1)})[0], shape);
}

}  // namespace tessera::graph
