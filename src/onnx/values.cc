#include "onnx/values.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/integer_types.h"
#include "onnx/call.h"

namespace tessera::onnx {

using graph::Shape;
using graph::Value;

Value whole_numbers(graph::Graph& graph, std::span<const int64_t> numbers, const Shape& shape, Type type) {
  const auto constant = [&](const auto& part_of) {
    std::vector<float> parts;
    parts.reserve(numbers.size());
    for (const int64_t number : numbers) parts.push_back(static_cast<float>(part_of(number)));
    return graph.constant("", shape, std::move(parts), type);
  };
  const auto is_exact = [](int64_t number) {
    return static_cast<double>(static_cast<float>(number)) == static_cast<double>(number);
  };
  if (std::ranges::all_of(numbers, is_exact)) return constant([](int64_t number) { return number; });
  const Value high = constant([](int64_t number) { return number >> 16; }),
              low = constant([](int64_t number) { return number & 0xFFFF; });
  return high * graph.constant("", {}, {65536}, type) + low;
}

Value number_like(Value x, double number) {
  if (!is_integer(x) || static_cast<float>(number) == number || number != std::floor(number))
    return x.owner().constant("", {}, {static_cast<float>(number)}, x.type().type);
  const auto whole = static_cast<int64_t>(number);
  return whole_numbers(x.owner(), {&whole, 1}, {}, x.type().type);
}

bool is_integer(Value x) { return tessera::is_integer(x.type().type); }

Value truth(Value holds) { return cast(holds, Type::f32); }
Value less_than(Value a, double b) { return less(a, number_like(a, b)); }
Value greater_than(Value a, double b) { return less(number_like(a, b), a); }
Value negative(Value x) { return is_integer(x) ? number_like(x, 0) - x : -x; }

Value magnitude(Value x) {
  if (x.type().type == Type::u32) return x;  // whose negative would be a large number
  return is_integer(x) ? maximum(x, negative(x)) : abs(x);
}

Value widened(Value x) { return is_integer(x) ? x : cast(x, Type::f32); }

Value divided(Value x, double number) {
  int exponent = 0;
  const bool is_power = std::abs(std::frexp(number, &exponent)) == 0.5 && std::abs(exponent) < 100;
  return is_power ? x * (1 / number) : x / number_like(x, number);
}

namespace {

/// For unsigned integers, whose remainder must not become negative: so each step rounds the quotient down.
Value unsigned_quotient(Value a, Value b) {
  const auto below = [&](Value of) {
    return cast(cast(of, Type::f32) / cast(b, Type::f32) * (1 - 0x1p-21), a.type().type);
  };
  Value quotient = below(a);
  quotient = quotient + below(a - quotient * b);  // corrects the rounding of FP32, up to a rest of 1
  return quotient + less_equal(b, a - quotient * b);
}

}  // namespace

Value whole_quotient(Value a, Value b) {
  if (a.type().type == Type::u32) return unsigned_quotient(a, b);
  const auto about = [&](Value of) { return cast(cast(of, Type::f32) / cast(b, Type::f32), a.type().type); };
  Value quotient = about(a);
  quotient = quotient + about(a - quotient * b);  // corrects the rounding of FP32, for large quotients
  // FP32 may round up to the next whole number: then the remainder and a have opposite signs.
  const Value rest = a - quotient * b, zero = number_like(a, 0);
  const Value over = not_equal(rest, zero) * not_equal(less(rest, zero), less(a, zero));
  const Value sign = number_like(a, 1) - number_like(a, 2) * not_equal(less(a, zero), less(b, zero));
  return quotient - over * sign;
}

Value wrapped(Value x, DataType type) {
  if (!is_integer(type) || bits_of(type) > 16 || !is_integer(x)) return x;
  // Shifts to the upper end and back: a graph's integers wrap around at 32 bits, and FP32 holds 16 bits
  // exactly.
  const double factor = std::ldexp(1, 32 - bits_of(type));
  x = cast(x, Type::i32);
  const Value upper = cast(x * number_like(x, factor), Type::f32), y = cast(upper * (1 / factor), Type::i32);
  if (is_signed(type)) return y;
  return y + less(y, number_like(y, 0)) * number_like(y, std::ldexp(1, bits_of(type)));
}

Value taken(Value x, size_t dim, const std::vector<int64_t>& places) {
  const size_t rank = x.shape().size();
  const auto size = static_cast<int64_t>(x.shape()[dim]);
  if (places.empty()) refuse("nothing is left of dimension {} of {}", dim, size);
  bool is_slice = true;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0 || places[i] >= size) refuse("the index {} is beyond the size {}", places[i], size);
    is_slice = is_slice && places[i] == places[0] + static_cast<int64_t>(i);
  }
  if (is_slice) {
    const auto begin = static_cast<uint32_t>(places[0]), end = begin + static_cast<uint32_t>(places.size());
    if (begin == 0 && end == x.shape()[dim]) return x;
    return slice(x, static_cast<uint32_t>(dim), begin, end);
  }
  if (dim + 1 != rank || is_integer(x) || size >= 1 << 24) {
    const auto count = static_cast<uint32_t>(places.size());
    return index_select(x, static_cast<int>(dim), whole_numbers(x.owner(), places, {count}, Type::u32));
  }
  const std::vector<uint32_t> of_features(places.begin(), places.end());
  std::vector<int64_t> sorted = places;
  std::ranges::sort(sorted);
  const bool is_permutation =
      static_cast<int64_t>(places.size()) == size && std::ranges::adjacent_find(sorted) == sorted.end();
  return is_permutation ? permute_features(x, of_features) : select_features(x, of_features);
}

Value product_over(Value x, uint32_t dim) {
  while (x.shape()[dim] > 1) {  // multiplies the two halves
    const uint32_t size = x.shape()[dim], half = size / 2;
    const Value product = slice(x, dim, 0, half) * slice(x, dim, half, 2 * half);
    x = size == 2 * half ? product : graph::concatenate({product, slice(x, dim, size - 1, size)}, dim);
  }
  return x;
}

Dims common_dims(const Dims& a, const Dims& b) {
  Dims common(std::max(a.size(), b.size()), 1);
  for (const Dims* each : {&a, &b})
    for (size_t i = 0; i < each->size(); ++i) {
      int64_t& size = common[common.size() - each->size() + i];
      const int64_t own = (*each)[i];
      if (own != 1 && size != 1 && own != size)
        refuse("{} and {} do not broadcast", to_string(a), to_string(b));
      if (own != 1) size = own;
    }
  return common;
}

Shape as_shape(const Dims& dims) {
  for (const int64_t size : dims)
    if (size < 1 || size > UINT32_MAX)
      refuse("a value of shape {} is not possible in a graph: sizes are from 1 to 2^32 - 1", to_string(dims));
  return {dims.begin(), dims.end()};
}

}  // namespace tessera::onnx
