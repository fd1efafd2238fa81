// Products.
#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

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

/// A product with a sparse weight for each group, one after another; none: the weights stay dense.
std::optional<Value> product_by_group(Call& call, Value x) {
  const Known& b = call[1];
  if (call[0].constant || !b.constant || !b.constant->has_floats() || b.dims.size() != 3) return {};
  const size_t rank = x.shape().size();
  const uint32_t given = rank > 2 ? x.shape()[rank - 3] : 1;
  const bool fits = (given == 1 || given == b.dims[0]) && x.type().cols() == b.dims[1];
  if (!fits || b.constant->size() == 0) return {};
  const std::vector<Value> weights =
      call.context.weights_of(b.constant, x.type().rows() / given, weight_name(call));
  if (weights.empty()) return {};
  if (rank == 2) x = reshape(x, {1, x.shape()[0], x.shape()[1]});
  const auto dim = static_cast<uint32_t>(x.shape().size() - 3);
  std::vector<Value> parts(weights.size(), x);
  if (given > 1) parts = split(x, std::vector<uint32_t>(weights.size(), 1), dim);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = linear(parts[i], weights[i]);
  return concatenate(parts, dim);
}

/// A product of a weight with a value that is computed.
Value product_with_left(Call& call) {
  const Known& a = call[0];
  Value x = call.value(1);
  if (call[1].dims.size() == 1) x = reshape(x, {x.shape()[0], 1});
  const uint32_t inner = x.shape()[x.shape().size() - 2];
  if (a.dims[1] != inner) refuse("{} and {} do not fit", to_string(a.dims), to_string(call[1].dims));
  const auto columns = static_cast<uint32_t>(x.type().elements() / inner);
  const Value weight = call.context.weight_of(a.constant, false, columns, weight_name(call));
  return weight.type().pattern ? matmul(weight, x) : matrix_product(call, weight, x);
}

/// a · b, whose vectors are matrices of one row or column.
Value any_product(Call& call) {
  const Known &a = call[0], &b = call[1];
  if (is_weight(a) && !b.constant) return product_with_left(call);
  Value x = call.value(0);
  if (a.dims.size() == 1) x = reshape(x, {1, x.shape()[0]});
  if (is_weight(b) && !a.constant) {
    if (b.dims[0] != x.type().cols()) refuse("{} and {} do not fit", to_string(a.dims), to_string(b.dims));
    return product_with_weight(call, x, b, true);
  }
  if (const auto attended = attention_of(call.context, x, b)) return *attended;
  if (const auto by_group = product_by_group(call, x)) return *by_group;
  if (b.constant) call.context.leave(*b.constant, weight_name(call), "batched product");
  if (a.constant) call.context.leave(*a.constant, weight_name(call), "left factor of a product");
  Value w = call.value(1);
  if (b.dims.size() == 1) w = reshape(w, {w.shape()[0], 1});
  return matrix_product(call, x, w);
}

Results product(Call& call) {
  const Known &a = call[0], &b = call[1];
  if (a.dims.empty() || b.dims.empty()) refuse("a product with a scalar is not possible");
  if (is_integer(a.type) || is_integer(b.type)) refuse("products of integers are not possible");
  const bool is_row = a.dims.size() == 1, is_column = b.dims.size() == 1;
  const Value y = any_product(call);
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
    if (arrow == std::string::npos) {  // what is named once
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

/// With each dimension once, and without those that are not needed, over which it is summed.
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

/// The product with an input, summed over what is not needed after it.
Term product_with_input(Call& call, const Term& a, size_t input, std::string letters,
                        const std::string& needed) {
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
  for (const char letter : a.letters) (has(letters, letter) ? has(needed, letter) ? batch : k : m) += letter;
  for (const char letter : letters)
    if (!has(a.letters, letter)) n += letter;
  const uint32_t outer = product_of(batch, sizes), rows = product_of(m, sizes), inner = product_of(k, sizes),
                 cols = product_of(n, sizes);
  const Value x = reshape(ordered(a.x, a.letters, batch + m + k), {outer, rows, inner});
  const std::string result = batch + m + n;
  Shape shape;
  for (const char letter : result) shape.push_back(sizes.at(letter));
  const bool is_of_weight = !summed_b && is_weight(call[input]) && n.size() == 1 && k.size() == 1;
  Value y = x;
  if (is_of_weight && (input > 1 || !call[0].constant)) {
    y = product_with_weight(call, x, call[input], letters == k + n);
  } else {
    for (size_t i = input > 1 ? input : 0; i <= input; ++i)
      if (call[i].constant) call.context.leave(*call[i].constant, weight_name(call), "batched product");
    const Value b = ordered(summed_b ? *summed_b : call.value(input), letters, batch + n + k);
    y = matmul(x, reshape(b, {outer, cols, inner}), false, true);
  }
  return {reshape(y, shape), result};
}

Results einsum(Call& call) {
  const Equation equation(call);
  const auto needed_after = [&](size_t input) {
    std::string letters = equation.result;
    for (size_t i = input + 1; i < equation.inputs.size(); ++i) letters += equation.inputs[i];
    return letters;
  };
  Term y = summed(call, {call.value(0), equation.inputs[0]}, needed_after(0));
  for (size_t i = 1; i < equation.inputs.size(); ++i)
    y = product_with_input(call, y, i, equation.inputs[i], needed_after(i));
  return {known(ordered(y.x, y.letters, equation.result), call[0].type)};
}

constexpr Operator kProductsOperators[] = {{"Einsum", einsum}, {"Gemm", gemm}, {"MatMul", product}};

}  // namespace

std::span<const Operator> product_operators() { return kProductsOperators; }

}  // namespace tessera::onnx
