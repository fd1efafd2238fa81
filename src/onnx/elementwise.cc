// Arithmetic and activations.
#include <cmath>
#include <numbers>

#include "onnx/call.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using graph::Value;

/// The results of an operator on numbers.
Results of(const Call& call, Value result) {
  call.require_numbers();
  return {known(wrapped(result, call[0].type), call[0].type)};
}

/// A function of each element.
template <Value (*function)(Value)>
Results unary(Call& call) {
  return of(call, function(call.value(0)));
}

/// Applies one function to floating-point values, and another to integers.
template <Value (*function)(Value), Value (*of_integers)(Value)>
Results unary(Call& call) {
  const Value x = call.value(0);
  return of(call, is_integer(x) ? of_integers(x) : function(x));
}

Value same(Value x) { return x; }
Value larger_than_zero(Value x) { return maximum(x, number_like(x, 0)); }
Value sign_values(Value x) { return greater_than(x, 0) - less_than(x, 0); }
Value ceil(Value x) { return -floor(-x); }
Value tangent(Value x) { return sin(x) / cos(x); }
/// Near 0, where the exponentials cancel, by its series: up to x^7 / 7! it is exact to FP32 below 1/2.
Value sinh(Value x) {
  const Value s = square(x),
              series = (((s * (1.0 / 42) + 1.0) * s * (1.0 / 20) + 1.0) * s * (1.0 / 6) + 1.0) * x;
  // Halved before the product, which overflows later than the exponential.
  const Value half = exp(abs(x) * 0.5), large = half * 0.5 * half - reciprocal(half * half) * 0.5;
  return where(less_than(abs(x), 0.5), series, large * sign_values(x));
}
Value cosh(Value x) {
  const Value half = exp(abs(x) * 0.5);
  return half * 0.5 * half + reciprocal(half * half) * 0.5;
}

/// log(1 + x), also where 1 + x is rounded (Kahan's way).
Value log_after_one(Value x) {
  const Value sum = x + 1.0, rest = sum + -1.0, logs = log(sum), is_zero = equal(rest, number_like(rest, 0));
  const Value near = where(is_zero, x, logs * (x / where(is_zero, sum, rest)));
  return where(less_than(abs(x), 1), near, logs);
}

constexpr double kLarge = 4096;  // above this, x² ± 1 equals x² in FP32, and may overflow

Value asinh(Value x) {
  const Value wide = cast(x, Type::f32), size = abs(wide), squares = square(wide);
  const Value near = log_after_one(size + squares / (sqrt(squares + 1.0) + 1.0));
  const Value y = where(less_than(size, kLarge), near, log(size) + std::numbers::ln2);
  return cast(y * sign_values(wide), x.type().type);
}

Value acosh(Value x) {
  const Value wide = cast(x, Type::f32), rest = wide + -1.0;
  const Value near = log_after_one(rest + sqrt(rest * (wide + 1.0)));
  const Value y = where(less_than(wide, kLarge), near, log(wide) + std::numbers::ln2);
  return cast(y, x.type().type);
}

Value atanh(Value x) { return log_after_one(x * 2.0 / (-x + 1.0)) * 0.5; }

/// Below the tangent of 22.5 degrees by Cephes' polynomial, which is exact to FP32; other arguments are
/// reduced to that range.
Value arctangent(Value x) {
  constexpr double kMiddle = std::numbers::sqrt2 - 1, kSteep = std::numbers::sqrt2 + 1;
  const Value wide = cast(x, Type::f32), size = abs(wide);
  const Value is_middle = greater_than(size, kMiddle), is_large = greater_than(size, kSteep);
  const Value middle = (size + -1.0) / (size + 1.0);
  const Value rest = where(is_large, -reciprocal(size), where(is_middle, middle, size)), s = square(rest);
  const Value series =
      (((s * 8.05374449538e-2 + -1.38776856032e-1) * s + 1.99777106478e-1) * s + -3.33329491539e-1) * s;
  const Value y = series * rest + rest + (is_middle + is_large) * (std::numbers::pi / 4);
  return cast(y * sign_values(wide), x.type().type);
}

/// From -1/2 to 1/2, likewise.
Value arcsine_near_zero(Value x) {
  const Value s = square(x);
  const Value series =
      ((((s * 4.2163199048e-2 + 2.4181311049e-2) * s + 4.5470025998e-2) * s + 7.4953002686e-2) * s +
       1.6666752422e-1) *
      s;
  return series * x + x;
}

/// The root of half of 1 - |x|: twice its arcsine is the arccosine of |x|.
Value root_to_the_end(Value size) { return sqrt((-size + 1.0) * 0.5); }

Value arcsine(Value x) {
  const Value wide = cast(x, Type::f32), size = abs(wide), is_far = greater_than(size, 0.5);
  const Value near = arcsine_near_zero(where(is_far, root_to_the_end(size), size));
  const Value y = where(is_far, near * -2.0 + std::numbers::pi / 2, near);
  return cast(y * sign_values(wide), x.type().type);
}

Value arccosine(Value x) {
  const Value wide = cast(x, Type::f32), size = abs(wide), is_far = greater_than(size, 0.5);
  const Value near = arcsine_near_zero(where(is_far, root_to_the_end(size), wide)), end = near * 2.0;
  const Value of_end = where(less_than(wide, 0), -end + std::numbers::pi, end);
  return cast(where(is_far, of_end, -near + std::numbers::pi / 2), x.type().type);
}

Value softsign(Value x) { return x / (abs(x) + 1.0); }
Value mish(Value x) { return x * tanh(softplus(x)); }

/// The result in the shape of both; a scalar constant becomes a number of the operation.
std::optional<double> number_of(const Known& known, const Known& other) {
  if (!known.constant || known.constant->size() != 1 || !known.constant->has_floats()) return {};
  if (graph_type_of(known.type) != graph_type_of(other.type)) return {};
  if (known.dims.size() > other.dims.size()) return {};
  return known.constant->number(0);
}

/// Notes that y is x times a number.
Value scaled(Call& call, Value x, Value y, double factor) {
  const auto before = call.context.scaled.find(x.id);
  const bool is_scaled = before != call.context.scaled.end();
  call.context.scaled.insert({y.id, is_scaled
                                        ? std::pair(before->second.first, before->second.second * factor)
                                        : std::pair(x, factor)});
  if (const auto found = call.context.scores.find(x.id);
      found != call.context.scores.end() && !found->second.bias) {
    Scores scores = found->second;
    scores.scale *= factor;
    call.context.scores.insert({y.id, scores});
  }
  return y;
}

/// A product with a bias added: x is [..., features], and the bias a constant with `features` elements.
std::optional<Known> with_bias(Call& call, const Known& x, const Known& bias) {
  if (!x.value || !bias.constant) return {};
  const auto found = call.context.products.find(x.value->id);
  if (found == call.context.products.end() || bias.dims.empty() || bias.dims.size() > x.dims.size())
    return {};
  const auto features = static_cast<uint64_t>(x.dims.back());
  if (bias.constant->size() != features || bias.dims.back() != x.dims.back() || bias.type != x.type)
    return {};
  const auto [input, weight] = found->second;
  const Value y = linear(input, weight, reshape(call.value_of(bias), {static_cast<uint32_t>(features)}));
  // x may have more dimensions than its value.
  return Known{x.type, x.dims, {}, y.shape() == x.value->shape() ? y : reshape(y, x.value->shape())};
}

/// Notes that y is scores with a bias added to them.
void note_bias(Call& call, const Known& x, const Known& bias, Value y) {
  if (!x.value) return;
  const auto found = call.context.scores.find(x.value->id);
  if (found == call.context.scores.end() || found->second.bias || y.shape() != x.value->shape()) return;
  Scores scores = found->second;
  scores.bias = bias;
  call.context.scores.insert({y.id, scores});
}

Results add_values(Call& call) {
  const Known &a = call[0], &b = call[1];
  if (const auto y = with_bias(call, a, b)) return {*y};
  if (const auto y = with_bias(call, b, a)) return {*y};
  if (const auto number = number_of(b, a)) return of(call, call.value(0) + *number);
  if (const auto number = number_of(a, b)) return of(call, call.value(1) + *number);
  const Value y = call.value(0) + call.value(1);
  note_bias(call, a, b, y);
  note_bias(call, b, a, y);
  return of(call, y);
}

Results subtract_values(Call& call) {
  if (const auto number = number_of(call[1], call[0])) return of(call, call.value(0) + -*number);
  if (const auto number = number_of(call[0], call[1])) return of(call, -call.value(1) + *number);
  return of(call, call.value(0) - call.value(1));
}

Value product(Call& call, Value x, double factor) { return scaled(call, x, x * factor, factor); }

Results multiply_values(Call& call) {
  if (const auto number = number_of(call[1], call[0])) return of(call, product(call, call.value(0), *number));
  if (const auto number = number_of(call[0], call[1])) return of(call, product(call, call.value(1), *number));
  return of(call, call.value(0) * call.value(1));
}

Results divide_values(Call& call) {
  const Value a = call.value(0);
  if (is_integer(a)) return of(call, whole_quotient(a, call.value(1)));
  if (const auto number = number_of(call[1], call[0]); number && *number != 0)
    return of(call, scaled(call, a, divided(a, *number), 1 / *number));
  return of(call, a / call.value(1));
}

Results modulo_values(Call& call) {
  const Value a = call.value(0), b = call.value(1);
  const bool of_dividend = call.integer("fmod", 0) != 0;
  if (!is_integer(a)) return of(call, of_dividend ? fmod(a, b) : remainder(a, b));
  const Value rest = a - whole_quotient(a, b) * b;
  if (of_dividend) return of(call, rest);
  // The result has the sign of the divisor.
  const Value zero = number_like(a, 0);
  return of(call, rest + b * (not_equal(rest, zero) * not_equal(less(rest, zero), less(b, zero))));
}

Results power_values(Call& call) {
  const Value x = call.value(0);
  const std::optional<double> exponent =
      call[1].constant && call[1].constant->size() == 1 && call[1].dims.size() <= call[0].dims.size()
          ? std::optional(call[1].constant->number(0))
          : std::nullopt;
  if (is_integer(x)) {
    if (!exponent || *exponent < 1 || *exponent > 8 || *exponent != std::floor(*exponent))
      refuse("powers of integers are only possible with constant exponents from 1 to 8");
    Value y = x;
    for (int i = 1; i < static_cast<int>(*exponent); ++i) y = y * x;
    return of(call, y);
  }
  if (!exponent) return of(call, pow(x, cast(call.value(1), x.type().type)));
  if (*exponent == 2) return of(call, square(x));
  if (*exponent == 1) return of(call, x);
  if (*exponent == 0.5) return of(call, sqrt(x));
  if (*exponent == -1) return of(call, reciprocal(x));
  if (*exponent == -0.5) return of(call, rsqrt(x));
  return of(call, pow(x, *exponent));
}

/// Reduces one or more values; the inputs of a minimum or a maximum bound each other.
template <Value (*function)(Value, Value)>
Results fold_values(Call& call) {
  const auto value = [&](size_t i) {
    if constexpr (function == &graph::maximum) return call.bound(i, Bound::below);
    if constexpr (function == &graph::minimum) return call.bound(i, Bound::above);
    return call.value(i);
  };
  Value y = value(0);
  for (size_t i = 1; i < call.size(); ++i) y = function(y, value(i));
  return of(call, y);
}

Value sum_of(Value a, Value b) { return a + b; }

Results mean(Call& call) {
  Results sums = fold_values<sum_of>(call);
  sums[0].value = divided(*sums[0].value, static_cast<double>(call.size()));
  return sums;
}

Results clip(Call& call) {
  const Value x = call.value(0);
  const auto bound = [&](size_t i) {
    return call.has(i) && call[i].constant ? std::optional(call.number_of(i)) : std::nullopt;
  };
  const bool has_values = (call.has(1) && !call[1].constant) || (call.has(2) && !call[2].constant);
  if (is_integer(x) || has_values || (bound(1) && bound(2) && *bound(1) > *bound(2))) {
    Value y = call.has(1) ? maximum(x, call.bound(1, Bound::below)) : x;
    if (call.has(2)) y = minimum(y, call.bound(2, Bound::above));
    return of(call, y);
  }
  if (!bound(1) && !bound(2)) return of(call, x);
  return of(call, clip(x, bound(1), bound(2)));
}

Results gelu(Call& call) {
  const Value x = call.value(0);
  return of(call, call.text("approximate", "none") == "tanh" ? gelu_tanh(x) : gelu(x));
}

Results leaky_relu(Call& call) { return of(call, leaky_relu(call.value(0), call.number("alpha", 0.01))); }
Results softplus(Call& call) { return of(call, softplus(call.value(0))); }
Results elu(Call& call) { return of(call, elu(call.value(0), call.number("alpha", 1))); }

Results selu(Call& call) {
  const double alpha = call.number("alpha", 1.67326319217681884765625),
               gamma = call.number("gamma", 1.05070102214813232421875);
  return of(call, elu(call.value(0), alpha) * gamma);
}

Results celu(Call& call) {
  const double alpha = call.number("alpha", 1);
  return of(call, elu(divided(call.value(0), alpha), 1) * alpha);
}

Results prelu(Call& call) {
  const Value x = call.value(0);
  return of(call, where(less_than(x, 0), x * call.value(1), x));
}

Results hard_sigmoid(Call& call) {
  return of(call, clip(call.value(0) * call.number("alpha", 0.2) + call.number("beta", 0.5), 0, 1));
}

Results thresholded_relu(Call& call) {
  const Value x = call.value(0);
  return of(call, where(greater_than(x, call.number("alpha", 1)), x, number_like(x, 0)));
}

Results shrink(Call& call) {
  const Value x = call.value(0), zero = number_like(x, 0);
  const double lambda = call.number("lambd", 0.5), bias = call.number("bias", 0);
  const Value low = where(less_than(x, -lambda), x + bias, zero);
  return of(call, where(greater_than(x, lambda), x + -bias, low));
}

Value swish_of(const Call& call) {
  const Value x = call.value(0);
  const double alpha = call.number("alpha", 1);
  return alpha == 1 ? silu(x) : x * sigmoid(x * alpha);
}

Results swish(Call& call) { return of(call, swish_of(call)); }
Results gated_swish(Call& call) { return of(call, swish_of(call) * call.value(1)); }

Results bitwise_not(Call& call) {
  const Value x = call.value(0);
  if (!is_integer(x)) refuse("it takes integers, and is given {}", name_of(call[0].type));
  if (call[0].type == DataType::u64)
    refuse("the bits that it sets are beyond 32, as integers of a graph have: compute with a smaller type");
  return of(call, negative(x) - number_like(x, 1));
}

Results identity(Call& call) { return {call[0]}; }

/// Dropout for inference.
Results dropout(Call& call) {
  if (call.has(2)) {
    call.require_truth(2);
    if (call.integer_of(2) != 0) refuse("it is in training mode: export the model for inference");
  }
  Results results = {call[0]};
  if (call.node.output_size() > 1) {
    call.context.spend(elements_of(call[0].dims));
    const std::vector<double> ones(elements_of(call[0].dims), 1);
    results.push_back(known(of_numbers(ones, call[0].dims, DataType::boolean)));
  }
  return results;
}

Results convert(Call& call, DataType to) {
  if (!is_known(to)) refuse("elements of type {} are not possible", static_cast<int>(to));
  const Known& from = call[0];
  if (from.constant) return {known(converted(*from.constant, to))};
  const bool may_wrap = is_integer(to) && bits_of(to) < 32 && to != from.type;
  if (graph_type_of(from.type) == graph_type_of(to) && to != DataType::boolean && !may_wrap &&
      (from.type != DataType::boolean || is_float(to))) {
    Known same = from;
    same.type = to;
    return {same};
  }
  const Value x = call.value(0);
  if (to != DataType::boolean) return {known(wrapped(cast(x, graph_type_of(to)), to), to)};
  return {known(truth(not_equal(x, number_like(x, 0))), to)};
}

Results cast_to(Call& call) { return convert(call, static_cast<DataType>(call.integer("to"))); }
Results cast_like(Call& call) { return convert(call, call[1].type); }

constexpr Operator kElementwiseOperators[] = {{"Abs", unary<magnitude>},
                                              {"Acos", unary<arccosine>},
                                              {"Acosh", unary<acosh>},
                                              {"Add", add_values, 2},
                                              {"Asin", unary<arcsine>},
                                              {"Asinh", unary<asinh>},
                                              {"Atan", unary<arctangent>},
                                              {"Atanh", unary<atanh>},
                                              {"BitwiseNot", bitwise_not},
                                              {"Cast", cast_to},
                                              {"CastLike", cast_like, 2},
                                              {"Ceil", unary<ceil, same>},
                                              {"Celu", celu},
                                              {"Clip", clip, 3},
                                              {"Cos", unary<graph::cos>},
                                              {"Cosh", unary<cosh>},
                                              {"Div", divide_values, 2},
                                              {"Dropout", dropout, 3},
                                              {"Elu", elu},
                                              {"Erf", unary<graph::erf>},
                                              {"Exp", unary<graph::exp>},
                                              {"Floor", unary<graph::floor, same>},
                                              {"Gelu", gelu},
                                              {"HardSigmoid", hard_sigmoid},
                                              {"HardSwish", unary<graph::hard_swish>},
                                              {"Identity", identity},
                                              {"LeakyRelu", leaky_relu},
                                              {"Log", unary<graph::log>},
                                              {"Max", fold_values<graph::maximum>, kAnyNumber},
                                              {"Mean", mean, kAnyNumber},
                                              {"Min", fold_values<graph::minimum>, kAnyNumber},
                                              {"Mish", unary<mish>},
                                              {"Mod", modulo_values, 2},
                                              {"Mul", multiply_values, 2},
                                              {"Neg", unary<negative>},
                                              {"PRelu", prelu, 2},
                                              {"Pow", power_values, 2},
                                              {"Reciprocal", unary<graph::reciprocal>},
                                              {"Relu", unary<graph::relu, larger_than_zero>},
                                              {"Round", unary<graph::round, same>},
                                              {"Selu", selu},
                                              {"Shrink", shrink},
                                              {"Sigmoid", unary<graph::sigmoid>},
                                              {"Sign", unary<sign_values>},
                                              {"Sin", unary<graph::sin>},
                                              {"Sinh", unary<sinh>},
                                              {"Softplus", softplus},
                                              {"Softsign", unary<softsign>},
                                              {"Sqrt", unary<graph::sqrt>},
                                              {"Sub", subtract_values, 2},
                                              {"Sum", fold_values<sum_of>, kAnyNumber},
                                              {"SwiGLU", gated_swish, 2},
                                              {"Swish", swish},
                                              {"Tan", unary<tangent>},
                                              {"Tanh", unary<graph::tanh>},
                                              {"ThresholdedRelu", thresholded_relu}};

}  // namespace

std::span<const Operator> elementwise_operators() { return kElementwiseOperators; }

}  // namespace tessera::onnx
