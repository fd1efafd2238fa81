// Products.
#include <algorithm>

#include "onnx/attention.h"
#include "onnx/call.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using graph::Shape;
using graph::Value;

bool is_weight(const Known& known) {
  return known.constant && known.constant->has_floats() && known.dims.size() == 2 && known.dims[0] > 0 &&
         known.dims[1] > 0;
}

std::string weight_name(const Call& call) {
  return (call.node.output_size() > 0 ? call.node.output(0) : call.node.name()) + ".weight";
}

Value product_with_weight(Call& call, Value x, const Known& matrix, bool transposed) {
  const uint32_t rows = x.type().rows();
  const Value weight = call.context.weight_of(matrix.constant, transposed, rows, weight_name(call));
  const Value y = linear(x, weight);
  call.context.products.insert({y.id, {x, weight}});
  return y;
}

/// With the leading dimensions of both.
Value with_leading(Value x, const Dims& leading) {
  Shape shape = as_shape(leading), own(leading.size() + 2 - x.shape().size(), 1);
  shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
  if (shape == x.shape()) return x;
  own.insert(own.end(), x.shape().begin(), x.shape().end());
  return expand(reshape(x, own), shape);
}

Dims leading_of(Value x) { return {x.shape().begin(), x.shape().end() - 2}; }

/// a · b of at least two dimensions.
Value matrix_product(Call& call, Value a, Value b) {
  if (b.shape().size() > 2 || a.shape().size() == 2) {
    const Dims leading = common_dims(leading_of(a), leading_of(b));
    a = with_leading(a, leading);
    b = with_leading(b, leading);
  }
  const auto transposed = call.context.transposes.find(b.id);
  const bool is_transposed =
      transposed != call.context.transposes.end() && transposed->second.shape().size() == b.shape().size();
  const Value y = is_transposed ? matmul(a, transposed->second, false, true) : matmul(a, b);
  note_scores(call.context, a, b, y);
  return y;
}

Results product(Call& call) {
  const Known &a = call[0], &b = call[1];
  if (a.dims.empty() || b.dims.empty()) refuse("a product with a scalar is not possible");
  if (is_integer(a.type) || is_integer(b.type)) refuse("products of integers are not possible");
  Value x = call.value(0);
  const bool is_row = a.dims.size() == 1, is_column = b.dims.size() == 1;
  if (is_row) x = reshape(x, {1, x.shape()[0]});
  Value y = x;
  if (is_weight(b) && !a.constant) {
    if (b.dims[0] != x.type().cols()) refuse("{} and {} do not fit", to_string(a.dims), to_string(b.dims));
    y = product_with_weight(call, x, b, true);
  } else if (const auto attended = attention_of(call.context, x, b)) {
    y = *attended;
  } else {
    if (b.constant) call.context.leave(*b.constant, weight_name(call), "batched product");
    if (a.constant) call.context.leave(*a.constant, weight_name(call), "left factor of a product");
    Value w = call.value(1);
    if (is_column) w = reshape(w, {w.shape()[0], 1});
    y = matrix_product(call, x, w);
  }
  Shape shape = y.shape();
  if (is_column) shape.pop_back();
  if (is_row) shape.erase(shape.end() - (is_column ? 1 : 2));
  return {known(shape == y.shape() ? y : reshape(y, shape), a.type)};
}

/// alpha · a · b + beta · c of matrices.
Results gemm(Call& call) {
  const bool transposes_a = call.integer("transA", 0) != 0, transposes_b = call.integer("transB", 0) != 0;
  const double alpha = call.number("alpha", 1), beta = call.number("beta", 1);
  Value a = call.value(0);
  if (a.shape().size() != 2 || call[1].dims.size() != 2) refuse("its inputs are no matrices");
  if (transposes_a) a = transpose(a);
  const int64_t inner = call[1].dims[transposes_b ? 1 : 0];
  if (inner != a.type().cols())
    refuse("{} and {} do not fit", to_string(call[0].dims), to_string(call[1].dims));
  std::optional<Value> added = call.has(2) ? std::optional(call.value(2)) : std::nullopt;
  if (added && beta != 1) added = *added * beta;
  Value y = a;
  if (is_weight(call[1]) && !call[0].constant) {
    const int64_t outputs = call[1].dims[transposes_b ? 0 : 1];
    const Value weight =
        call.context.weight_of(call[1].constant, !transposes_b, a.type().rows(), weight_name(call));
    const bool is_bias = added && alpha == 1 && call[2].constant &&
                         added->type().elements() == static_cast<uint64_t>(outputs) &&
                         (call[2].dims.empty() || call[2].dims.back() == outputs);
    if (is_bias)
      return {known(linear(a, weight, reshape(*added, {static_cast<uint32_t>(outputs)})), call[0].type)};
    y = linear(a, weight);
    if (!added && alpha == 1) call.context.products.insert({y.id, {a, weight}});
  } else {
    if (call[0].constant)
      call.context.leave(*call[0].constant, weight_name(call), "left factor of a product");
    y = matmul(a, call.value(1), false, transposes_b);
  }
  if (alpha != 1) y = y * alpha;
  return {known(added ? y + *added : y, call[0].type)};
}

/// The letters of a product of two as NumPy writes it: "bhqd,bhkd->bhqk".
struct Letters {
  explicit Letters(std::string text) {
    std::erase(text, ' ');
    const size_t comma = text.find(','), arrow = text.find("->");
    if (comma == std::string::npos || arrow == std::string::npos || arrow < comma ||
        text.find('.') != std::string::npos)
      refuse("its equation is {}; only products of two without '...' are possible", text);
    a = text.substr(0, comma);
    b = text.substr(comma + 1, arrow - comma - 1);
    y = text.substr(arrow + 2);
    for (const std::string* each : {&a, &b, &y}) {
      std::string sorted = *each;
      std::ranges::sort(sorted);
      if (std::ranges::adjacent_find(sorted) != sorted.end()) refuse("its equation names a dimension twice");
    }
  }

  std::string a, b, y;
};

bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

uint32_t product_of(const std::string& letters, const std::map<char, uint32_t>& sizes) {
  uint32_t product = 1;
  for (const char letter : letters) product *= sizes.at(letter);
  return product;
}

/// In the order of the letters.
Value ordered(Value x, const std::string& from, const std::string& to) {
  std::vector<int> order;
  for (const char letter : to) order.push_back(static_cast<int>(from.find(letter)));
  return std::ranges::is_sorted(order) ? x : permute(x, order);
}

Results einsum(Call& call) {
  const Letters letters(call.text("equation", ""));
  if (call.size() != 2) refuse("only products of two are possible");
  Value a = call.value(0);
  const Shape shape_of_b = as_shape(call[1].dims);
  if (letters.a.size() != a.shape().size() || letters.b.size() != shape_of_b.size())
    refuse("its equation names other dimensions than its inputs have");
  std::map<char, uint32_t> sizes;
  for (size_t i = 0; i < letters.a.size(); ++i) sizes[letters.a[i]] = a.shape()[i];
  for (size_t i = 0; i < letters.b.size(); ++i)
    if (!sizes.emplace(letters.b[i], shape_of_b[i]).second && sizes[letters.b[i]] != shape_of_b[i])
      refuse("a dimension has two sizes");
  std::string batch, m, k, n;
  for (const char letter : letters.a)
    (has(letters.b, letter) ? has(letters.y, letter) ? batch : k : m) += letter;
  for (const char letter : letters.b)
    if (!has(letters.a, letter)) n += letter;
  for (const char letter : m + n)
    if (!has(letters.y, letter)) refuse("sums of one input alone are not possible");
  if (letters.y.size() != batch.size() + m.size() + n.size()) refuse("its result has other dimensions");
  const uint32_t outer = product_of(batch, sizes), rows = product_of(m, sizes), inner = product_of(k, sizes),
                 cols = product_of(n, sizes);
  a = reshape(ordered(a, letters.a, batch + m + k), {outer, rows, inner});
  const std::string result = batch + m + n;
  Shape shape;
  for (const char letter : result) shape.push_back(sizes.at(letter));
  Value y = a;
  if (is_weight(call[1]) && !call[0].constant && n.size() == 1 && k.size() == 1) {
    y = product_with_weight(call, a, call[1], letters.b == k + n);
  } else {
    for (size_t i : {0, 1})
      if (call[i].constant) call.context.leave(*call[i].constant, weight_name(call), "batched product");
    const Value b = ordered(call.value(1), letters.b, batch + n + k);
    y = matmul(a, reshape(b, {outer, cols, inner}), false, true);
  }
  return {known(ordered(reshape(y, shape), result, letters.y), call[0].type)};
}

constexpr Operator kProductsOperators[] = {{"Einsum", einsum}, {"Gemm", gemm}, {"MatMul", product}};

}  // namespace

std::span<const Operator> product_operators() { return kProductsOperators; }

}  // namespace tessera::onnx
