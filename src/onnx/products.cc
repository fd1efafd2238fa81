// Products.
#include <tessera/inspect.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "graph/dims.h"
#include "onnx/attention.h"
#include "onnx/call.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using graph::Shape;
using graph::Value;

/// A constant in another shape, once.
Known in_other_shape(Call& call, const ConstantPointer& constant, Dims dims) {
  if (constant->dims == dims) return known(constant);
  ConstantPointer& other = call.context.in_other_shapes[{constant.get(), dims}];
  if (!other) {
    call.context.held.push_back(constant);
    other = reshaped(*constant, std::move(dims));
  }
  return known(other);
}

/// A constant without leading dimensions of 1: a matrix, or a stack of matrices.
Known without_ones(Call& call, const Known& of) {
  size_t ones = 0;
  while (of.dims.size() - ones > 2 && of.dims[ones] == 1) ++ones;
  if (!of.constant || ones == 0) return of;
  return in_other_shape(call, of.constant, Dims(of.dims.begin() + static_cast<int64_t>(ones), of.dims.end()));
}

bool is_weight(const Known& known) {
  return known.constant && known.constant->has_floats() && known.dims.size() == 2 && known.dims[0] > 0 &&
         known.dims[1] > 0;
}

Value product_with_weight(Call& call, Value x, const Known& matrix, bool transposed) {
  const uint32_t rows = x.type().rows();
  const Value weight = call.context.weight_of(matrix.constant, transposed, rows, call.weight_name());
  const Value y = linear(x, weight);
  call.context.products.insert({y.id, {x, weight}});
  return y;
}

/// x broadcast to the leading dimensions of both operands.
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
  call.count_work(a.type().elements(), b.type().cols());
  const auto transposed = call.context.transposes.find(b.id);
  const bool is_transposed =
      transposed != call.context.transposes.end() && transposed->second.shape().size() == b.shape().size();
  const Value y = is_transposed ? matmul(a, transposed->second, false, true) : matmul(a, b);
  note_scores(call.context, a, b, y);
  return y;
}

/// Several matrices, each of which may be a weight of its own.
bool is_stack(const Known& known) {
  return known.constant && known.constant->has_floats() && known.dims.size() == 3 &&
         known.constant->size() > 0;
}

/// x [..., groups, rows, inputs] with a sparse weight for each group, one after another; x may have the same
/// rows for all. None: the weights stay dense. `transposed`: the matrices are [inputs, outputs].
std::optional<Value> product_by_group(Call& call, Value x, const Known& stack, bool transposed) {
  const size_t rank = x.shape().size();
  const uint32_t given = rank > 2 ? x.shape()[rank - 3] : 1;
  const int64_t inputs = stack.dims[transposed ? 1 : 2];
  if ((given != 1 && given != stack.dims[0]) || x.type().cols() != inputs) return {};
  const std::vector<Value> weights =
      call.context.weights_of(stack.constant, transposed, x.type().rows() / given, call.weight_name());
  if (weights.empty()) return {};
  if (rank == 2) x = reshape(x, {1, x.shape()[0], x.shape()[1]});
  const auto dim = static_cast<uint32_t>(x.shape().size() - 3);
  std::vector<Value> parts(weights.size(), x);
  if (given > 1) parts = split(x, std::vector<uint32_t>(weights.size(), 1), dim);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = linear(parts[i], weights[i]);
  return concatenate(parts, dim);
}

/// The same with the matrices on the left of x [..., groups, inputs, columns].
std::optional<Value> product_with_left_stack(Call& call, const Known& stack, Value x) {
  const auto y = product_by_group(call, with_transposed_matrices(x), stack, false);
  return y ? std::optional(with_transposed_matrices(*y)) : std::nullopt;
}

/// Columns of a matrix: a vector becomes a matrix with one column.
Value columns_of(const Call& call, const Known& b) {
  const Value x = call.value_of(b);
  return b.dims.size() == 1 ? reshape(x, {x.shape()[0], 1}) : x;
}

/// The product of a weight on the left with a computed value.
Value product_with_left(Call& call, const Known& a, const Known& b) {
  const Value x = columns_of(call, b);
  const uint32_t inner = x.shape()[x.shape().size() - 2];
  if (a.dims[1] != inner) refuse("{} and {} do not fit", to_string(a.dims), to_string(b.dims));
  const auto columns = static_cast<uint32_t>(x.type().elements() / inner);
  const Value weight = call.context.weight_of(a.constant, false, columns, call.weight_name());
  return weight.type().pattern ? matmul(weight, x) : matrix_product(call, weight, x);
}

/// a · b, whose vectors are matrices of one row or column.
Value any_product(Call& call, const Known& a, const Known& b) {
  if (is_weight(a) && !b.constant) return product_with_left(call, a, b);
  if (is_stack(a) && !b.constant)
    if (const auto by_group = product_with_left_stack(call, a, columns_of(call, b))) return *by_group;
  Value x = call.value_of(a);
  if (a.dims.size() == 1) x = reshape(x, {1, x.shape()[0]});
  if (is_weight(b) && !a.constant) {
    if (b.dims[0] != x.type().cols()) refuse("{} and {} do not fit", to_string(a.dims), to_string(b.dims));
    return product_with_weight(call, x, b, true);
  }
  if (const auto attended = attention_of(call.context, x, b)) return *attended;
  if (is_stack(b) && !a.constant)
    if (const auto by_group = product_by_group(call, x, b, true)) return *by_group;
  for (const Known* each : {&b, &a})
    if (each->constant) call.context.leave(*each->constant, call.weight_name(), "batched product");
  return matrix_product(call, x, columns_of(call, b));
}

Results product(Call& call) {
  const Known &a = call[0], &b = call[1];
  if (a.dims.empty() || b.dims.empty()) refuse("a product with a scalar is not possible");
  call.require_numbers();
  if (is_integer(a.type) || is_integer(b.type)) refuse("products of integers are not possible");
  const bool is_row = a.dims.size() == 1, is_column = b.dims.size() == 1;
  const bool is_of_constants = a.constant && b.constant;
  const Value y = is_of_constants ? any_product(call, a, b)
                                  : any_product(call, without_ones(call, a), without_ones(call, b));
  Shape shape = y.shape();
  shape.insert(shape.begin(), std::max({a.dims.size(), b.dims.size(), shape.size()}) - shape.size(), 1);
  if (is_column) shape.pop_back();
  if (is_row) shape.erase(shape.end() - (is_column ? 1 : 2));
  return {known(shape == y.shape() ? y : reshape(y, shape), a.type)};
}

/// alpha · a · b + beta · c of matrices.
Results gemm(Call& call) {
  call.require_numbers();
  const bool transposes_a = call.integer("transA", 0) != 0, transposes_b = call.integer("transB", 0) != 0;
  const double alpha = call.number("alpha", 1), beta = call.number("beta", 1);
  const Known &a = call[0], &b = call[1];
  if (a.dims.size() != 2 || b.dims.size() != 2) refuse("its inputs are not matrices");
  if (a.dims[transposes_a ? 0 : 1] != b.dims[transposes_b ? 1 : 0])
    refuse("{} and {} do not fit", to_string(a.dims), to_string(b.dims));
  const int64_t outputs = b.dims[transposes_b ? 0 : 1];
  const Dims dims = {a.dims[transposes_a ? 1 : 0], outputs};
  if (call.has(2) && common_dims(call[2].dims, dims) != dims)
    refuse("{} cannot be added to {}", to_string(call[2].dims), to_string(dims));
  std::optional<Value> added = call.has(2) ? std::optional(call.value(2)) : std::nullopt;
  if (added && beta != 1) added = *added * beta;
  const auto finished = [&](Value y) {
    if (alpha != 1) y = y * alpha;
    return Results{known(added ? y + *added : y, a.type)};
  };
  const auto weight_of = [&](const Known& matrix, bool transposed, int64_t rows) {
    return call.context.weight_of(matrix.constant, transposed, static_cast<uint32_t>(rows),
                                  call.weight_name());
  };
  if (is_weight(a) && !b.constant)
    return finished(matmul(weight_of(a, transposes_a, outputs), call.value(1), false, transposes_b));
  const Value x = transposes_a ? transpose(call.value(0)) : call.value(0);
  if (!is_weight(b) || a.constant) {
    for (const Known* each : {&a, &b})
      if (each->constant)
        call.context.leave(*each->constant, call.weight_name(), name_of(NoGain::not_a_product));
    call.count_work(x.type().elements(), outputs);
    return finished(matmul(x, call.value(1), false, transposes_b));
  }
  const Value weight = weight_of(b, !transposes_b, x.type().rows());
  const bool is_bias = added && alpha == 1 && call[2].constant &&
                       added->type().elements() == static_cast<uint64_t>(outputs) &&
                       (call[2].dims.empty() || call[2].dims.back() == outputs);
  if (is_bias) return {known(linear(x, weight, reshape(*added, {static_cast<uint32_t>(outputs)})), a.type)};
  const Value y = linear(x, weight);
  if (!added && alpha == 1) call.context.products.insert({y.id, {x, weight}});
  return finished(y);
}

constexpr std::string_view kRest = "...";

/// The dimensions that "..." stands for as digits, the last one as 0.
std::string with_digits(std::string letters, size_t count) {
  const size_t at = letters.find(kRest);
  if (at == std::string::npos) return letters;
  std::string digits;
  for (size_t d = count; d-- > 0;) digits += static_cast<char>('0' + d);
  return letters.replace(at, kRest.size(), digits);
}

/// An equation as NumPy writes it, such as "bhqd,bhkd->bhqk": the letters of inputs and result.
struct Equation {
  explicit Equation(const Call& call) : text(call.text("equation", "")) {
    std::erase(text, ' ');
    const size_t arrow = text.find("->");
    std::string all;
    for (const std::string& each : inputs_of(call, text.substr(0, arrow))) all += each;
    std::ranges::sort(all);
    if (arrow != std::string::npos) result = with_digits(text.substr(arrow + 2), rest);
    if (arrow == std::string::npos) {  // the letters that occur once
      result = with_digits(std::string(kRest), rest);
      for (const char letter : all)
        if (!is_digit(letter) && std::ranges::count(all, letter) == 1) result += letter;
    }
    if (std::ranges::any_of(text, is_digit) || !std::ranges::all_of(all + result, is_letter))
      fail("only letters and '...' are possible");
    for (const char letter : result)
      if (std::ranges::count(result, letter) > 1 || all.find(letter) == std::string::npos)
        fail("its result names a dimension twice, or one that no input has");
  }

  std::string text;
  std::vector<std::string> inputs = {};
  std::string result = {};
  size_t rest = 0;  ///< the number of dimensions that "..." stands for

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
  [[noreturn]] void fail(const char* why) const { refuse("its equation is {}: {}", text, why); }

  const std::vector<std::string>& inputs_of(const Call& call, const std::string& left) {
    for (size_t begin = 0; begin <= left.size();) {
      const size_t end = std::min(left.find(',', begin), left.size()), input = inputs.size();
      if (input == call.size()) fail("it has more inputs than there are");
      const std::string letters = left.substr(begin, end - begin);
      const bool has_rest = letters.find(kRest) != std::string::npos;
      const size_t named = letters.size() - (has_rest ? kRest.size() : 0), rank = call[input].dims.size();
      if (has_rest ? named > rank : named != rank) fail("it names other dimensions than its inputs have");
      rest = std::max(rest, rank - named);
      inputs.push_back(with_digits(letters, rank - named));
      begin = end + 1;
    }
    if (inputs.size() != call.size()) fail("it has fewer inputs than there are");
    return inputs;
  }
};

bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

uint32_t product_of(const std::string& letters, const std::map<char, uint32_t>& sizes) {
  uint32_t product = 1;
  for (const char letter : letters) product *= sizes.at(letter);
  return product;
}

Value in_order(Value x, const std::vector<int>& order) {
  return std::ranges::is_sorted(order) ? x : permute(x, order);
}

/// In the order of the letters.
Value ordered(Value x, const std::string& from, const std::string& to) {
  std::vector<int> order;
  for (const char letter : to) order.push_back(static_cast<int>(from.find(letter)));
  return in_order(x, order);
}

/// A value whose dimensions letters name.
struct Term {
  Value x;
  std::string letters;
};

/// The diagonals of dimensions of one name, one dimension after the other.
Term with_diagonals(Call& call, const Term& of) {
  const Shape& shape = of.x.shape();
  for (size_t at = 0; at < shape.size(); ++at) {
    const size_t again = of.letters.find(of.letters[at], at + 1);
    if (again == std::string::npos) continue;
    if (shape[at] != shape[again]) refuse("a dimension has two sizes");
    std::vector<int> order;
    Shape pairs;
    std::string letters;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d == at || d == again) continue;
      order.push_back(static_cast<int>(d));
      pairs.push_back(shape[d]);
      letters += of.letters[d];
    }
    order.insert(order.end(), {static_cast<int>(at), static_cast<int>(again)});
    pairs.push_back(shape[at] * shape[again]);
    call.context.spend(shape[at]);
    std::vector<int64_t> places(shape[at]);
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i * (places.size() + 1));
    const Value diagonal = taken(reshape(in_order(of.x, order), pairs), pairs.size() - 1, places);
    return with_diagonals(call, {diagonal, letters + of.letters[at]});
  }
  return of;
}

/// A term with each dimension once, summed over the dimensions that are not needed.
Term summed(Call& call, const Term& given, const std::string& needed) {
  const Term of = with_diagonals(call, given);
  std::vector<int> dims;
  std::string letters;
  for (size_t d = 0; d < of.letters.size(); ++d) {
    if (has(needed, of.letters[d]))
      letters += of.letters[d];
    else
      dims.push_back(static_cast<int>(d));
  }
  return {dims.empty() ? of.x : sum(of.x, dims), letters};
}

/// x [groups, rows, inputs] times a matrix of weights for each group, [inputs, outputs] if they are
/// transposed; none: the constant is no such weight, or its groups stay dense.
std::optional<Value> product_with_constant(Call& call, Value x, const Known& of, bool transposed) {
  if (!of.constant || !of.constant->has_floats() || of.constant->size() == 0) return {};
  const int64_t groups = x.shape()[0], inputs = x.type().cols();
  const int64_t outputs = static_cast<int64_t>(of.constant->size()) / (groups * inputs);
  Dims dims = {inputs, outputs};
  if (!transposed) std::swap(dims[0], dims[1]);
  if (groups == 1) return product_with_weight(call, x, in_other_shape(call, of.constant, dims), transposed);
  dims.insert(dims.begin(), groups);
  return product_by_group(call, x, in_other_shape(call, of.constant, dims), transposed);
}

/// The product with another input, summed over the dimensions that are not needed afterwards. `is_first`: it
/// is the product of the first two inputs.
Term product_with_input(Call& call, const Term& a, size_t input, std::string letters,
                        const std::string& needed, bool is_first) {
  std::optional<Value> summed_b;
  const auto is_single = [&](char letter) {
    return std::ranges::count(letters, letter) == 1 && has(a.letters + needed, letter);
  };
  if (!std::ranges::all_of(letters, is_single)) {
    const Term b = summed(call, {call.value(input), letters}, a.letters + needed);
    summed_b = b.x;
    letters = b.letters;
  }
  const Shape shape_of_b = summed_b ? summed_b->shape() : as_shape(call[input].dims);
  std::map<char, uint32_t> sizes;
  for (size_t i = 0; i < a.letters.size(); ++i) sizes[a.letters[i]] = a.x.shape()[i];
  for (size_t i = 0; i < letters.size(); ++i)
    if (!sizes.emplace(letters[i], shape_of_b[i]).second && sizes[letters[i]] != shape_of_b[i])
      refuse("a dimension has two sizes");
  std::string batch, m, k, n;
  for (const char letter : a.letters)
    if (!has(letters, letter) || has(needed, letter)) (has(letters, letter) ? batch : m) += letter;
  for (const char letter : letters)
    if (!has(a.letters, letter)) n += letter;
  for (const char letter : call[input].constant ? letters : a.letters)  // so that weights need no permutation
    if (has(letters, letter) && has(a.letters, letter) && !has(batch, letter)) k += letter;
  const uint32_t outer = product_of(batch, sizes), rows = product_of(m, sizes), inner = product_of(k, sizes),
                 cols = product_of(n, sizes);
  const Value x = reshape(ordered(a.x, a.letters, batch + m + k), {outer, rows, inner});
  const std::string result = batch + m + n;
  Shape shape;
  for (const char letter : result) shape.push_back(sizes.at(letter));
  const bool is_computed = !is_first || !call[0].constant || !call[1].constant;
  const bool is_transposed = letters == batch + k + n;
  std::optional<Value> y;
  if (is_computed && !summed_b && !k.empty() && !n.empty() && (is_transposed || letters == batch + n + k))
    y = product_with_constant(call, x, call[input], is_transposed);
  if (!y) {
    for (size_t i = is_computed ? input : 0; i <= input; ++i)
      if (call[i].constant) call.context.leave(*call[i].constant, call.weight_name(), "batched product");
    call.count_work(x.type().elements(), cols);
    const Value b = ordered(summed_b ? *summed_b : call.value(input), letters, batch + n + k);
    y = matmul(x, reshape(b, {outer, cols, inner}), false, true);
  }
  return {reshape(*y, shape), result};
}

Results einsum(Call& call) {
  const Equation equation(call);
  std::vector<size_t> order(equation.inputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // A constant on the left becomes the weight of the product with the input to its right.
  if (order.size() > 1 && call[0].constant && !call[1].constant) std::swap(order[0], order[1]);
  const auto needed_after = [&](size_t at) {
    std::string letters = equation.result;
    for (size_t i = at + 1; i < order.size(); ++i) letters += equation.inputs[order[i]];
    return letters;
  };
  Term y = summed(call, {call.value(order[0]), equation.inputs[order[0]]}, needed_after(0));
  for (size_t i = 1; i < order.size(); ++i)
    y = product_with_input(call, y, order[i], equation.inputs[order[i]], needed_after(i), i == 1);
  return {known(ordered(y.x, y.letters, equation.result), call[0].type)};
}

constexpr Operator kProductsOperators[] = {
    {"Einsum", einsum, kAnyNumber}, {"Gemm", gemm, 3}, {"MatMul", product, 2}};

}  // namespace

std::span<const Operator> product_operators() { return kProductsOperators; }

}  // namespace tessera::onnx
