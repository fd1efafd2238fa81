// Arithmetic and scattering, of elementwise operations and of embeddings.
#include <fmt/format.h>
#include <tessera/arithmetic.h>
#include <tessera/error.h>

#include <bit>
#include <limits>

#include "operations/constants.h"

namespace tessera::graph {
namespace {

Value below(Value a, double b) { return less(a, number(a, b)); }
Value is(Value a, double b) { return equal(a, number(a, b)); }

/// Whether both operands are of a 16-bit type, whose logarithms and quotients would lose too much to
/// rounding.
bool are_narrow(Value a, Value b) {
  const Type type = a.type().type;
  return (type == Type::f16 || type == Type::bf16) && b.type().type == type;
}

Value in_f32(Value (*function)(Value, Value), Value a, Value b) {
  return cast(function(cast(a, Type::f32), cast(b, Type::f32)), a.type().type);
}

/// `of` where x may have a fraction: numbers from 2^23 on are integers. Its derivative is 0.
Value whole(Value x, Value of) {
  const Attributes constant = {{"zero_derivative", int64_t{1}}};
  return x.owner().apply("where", {below(abs(x), 0x1p23), of, x}, constant)[0];
}

/// Whether the sign of a remainder differs from the divisor's.
Value has_other_sign(Value rest, Value divisor) {
  return not_equal(rest, number(rest, 0)) * not_equal(below(rest, 0), below(divisor, 0));
}

/// 1 for each id that no equal id follows, otherwise 0: the occurrence with the largest position, found bit
/// by bit.
Value last_of_each(Value ids, uint32_t rows) {
  const uint32_t count = ids.shape()[0];
  const auto column = [&](const auto& number_at) {
    std::vector<float> numbers(count);
    for (uint32_t i = 0; i < count; ++i) numbers[i] = number_at(i);
    return ids.owner().constant("", {count, 1}, std::move(numbers));
  };
  Value is_last = column([](uint32_t) { return 1.0F; });
  for (uint32_t bit = std::bit_ceil(count) / 2; bit > 0; bit /= 2) {
    const Value has_bit = column([&](uint32_t i) { return (i & bit) != 0 ? 1.0F : 0.0F; });
    const Value number_with_bit = embedding(ids, scatter_add(is_last * has_bit, 0, ids, rows));
    is_last = is_last * equal(has_bit, minimum(number_with_bit, number(has_bit, 1)));
  }
  return is_last;
}

}  // namespace

Value trunc(Value x) { return whole(x, cast(cast(x, Type::i32), x.type().type)); }

Value floor(Value x) {
  const Value y = trunc(x);
  return y - less(x, y);
}

Value round(Value x) {
  const Value low = floor(x), rest = x - low, is_odd = low - floor(low * 0.5) * 2.0;
  return whole(x, low + maximum(less(number(rest, 0.5), rest), is(rest, 0.5) * is_odd));
}

Value fmod(Value a, Value b) { return a.owner().apply("fmod", {a, b})[0]; }

Value remainder(Value a, Value b) {
  const Value rest = fmod(a, b);
  return where(has_other_sign(rest, b), rest + b, rest);
}

Value floor_divide(Value a, Value b) {
  if (are_narrow(a, b)) return in_f32(floor_divide, a, b);
  const Value rest = fmod(a, b), quotient = (a - rest) / b - has_other_sign(rest, b);
  // The quotient is an integer except for rounding.
  const Value low = floor(quotient);
  return where(is(b, 0), a / b, low + less(number(low, 0.5), quotient - low));
}

Value pow(Value x, Value exponent) {
  if (are_narrow(x, exponent)) return in_f32(pow, x, exponent);
  const Value is_zero = is(x, 0), one = number(x, 1);
  const Value size = exp(log(where(is_zero, one, abs(x))) * exponent);
  const double infinity = std::numeric_limits<double>::infinity();
  const Value of_zero = where(below(exponent, 0), number(x, infinity),
                              where(equal(exponent, exponent), number(x, 0), exponent));
  // From 2^24 on all numbers are even.
  const Value floored = floor(exponent), is_odd = floored - floor(floored * 0.5) * 2.0,
              sign = where(below(abs(exponent), 0x1p24), is_odd * -2.0 + 1.0, one);
  const Value of_negative =
      where(equal(floored, exponent), size * sign, number(x, std::numeric_limits<double>::quiet_NaN()));
  const Value y = where(is_zero, of_zero, where(below(x, 0), of_negative, size));
  // Constants only for these cases, because constants have no gradient. The gradient of 0 to the power of 1
  // is 1.
  const auto not_finite = [](Value of) { return not_equal(of - of, number(of, 0)); };
  const Value is_one = is(exponent, 0) * (is_zero + not_finite(x)) + is(x, 1) * not_finite(exponent) +
                       is(x, -1) * is(abs(exponent), infinity);
  return where(is_one, one, where(is(exponent, 1) * is_zero, x, y));
}

Value scatter(Value x, Value ids, Value values) {
  ids = as_indices(ids);
  Shape wanted = x.shape();
  const auto fail = [&] {
    throw UsageError(
        fmt::format("scatter: x is {}, the values are {} and the indices {}; they must be "
                    "[rows, ...], [count, ...] and u32[count]",
                    to_string(x.type()), to_string(values.type()), to_string(ids.type())));
  };
  if (wanted.empty() || ids.type().type != Type::u32 || ids.shape().size() != 1) fail();
  const uint32_t rows = wanted[0], count = ids.shape()[0];
  wanted[0] = count;
  if (values.shape() != wanted || values.type().type != x.type().type) fail();
  constexpr uint32_t kMost = 1 << 24;  // which FP32 holds
  if (uint64_t{rows} + count >= kMost)
    throw UsageError(fmt::format("scatter: {} + {} rows are more than 2^24", rows, count));
  Graph& graph = x.owner();
  const Value places = reshape(count_to(graph, count, Type::f32) + 1.0, {count, 1});
  const Value chosen =
      cast(reshape(scatter_add(last_of_each(ids, rows) * places, 0, ids, rows), {rows}), Type::u32);
  const Value from = where(chosen, chosen + number(chosen, rows - 1), count_to(graph, rows, Type::u32));
  return index_select(concatenate({x, values}, 0), 0, from);
}

}  // namespace tessera::graph
