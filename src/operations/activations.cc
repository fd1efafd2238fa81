// Functions of each element that consist of others, which are computed in FP32.
#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <cstdint>

#include "operations/constants.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

/// min(x, high), with a gradient for elements at the bound.
Value at_most(Value x, double high) {
  return x.owner().apply("clip", {x}, {{"high", high}, {"closed", int64_t{1}}})[0];
}

std::optional<double> bound_of(const Node& node, const char* name) {
  return node.attributes.contains(name) ? std::optional(node.number(name)) : std::nullopt;
}

Value clip_of(const Node& node, Value x) {
  if (const auto low = bound_of(node, "low")) x = maximum(x, number(x, *low));
  if (const auto high = bound_of(node, "high")) x = minimum(x, number(x, *high));
  return x;
}

/// Elements at a bound have no gradient, as in PyTorch, unless the range is closed.
Gradients clip_gradient(const Differentiation& d) {
  const Value x = d.input(0), dy = *d.dy[0];
  const auto ordered = d.node.integer("closed", 0) != 0 ? less_equal : less;
  std::optional<Value> inside;
  const auto narrow = [&](Value holds) { inside = inside ? *inside * holds : holds; };
  if (const auto low = bound_of(d.node, "low")) narrow(ordered(number(x, *low), x));
  if (const auto high = bound_of(d.node, "high")) narrow(ordered(x, number(x, *high)));
  return {where(*inside, dy, number(dy, 0))};
}

Value leaky_relu_of(const Node& node, Value x) {
  const double slope = node.number("slope");
  const Value below = x * slope;
  // The product of 0 and an infinite x would be NaN.
  if (slope == 0) return where(less(number(x, 0), x), x, below);
  return slope <= 1 ? maximum(x, below) : minimum(x, below);
}

Gradients leaky_relu_gradient(const Differentiation& d) {
  const Value x = d.input(0), dy = *d.dy[0];
  return {where(less(number(x, 0), x), dy, dy * d.node.number("slope"))};
}

/// exp(x) − 1 as tanh(x / 2) · (exp(x) + 1), which avoids the difference of nearly equal numbers.
Value elu_of(const Node& node, Value x) {
  const Value low = at_most(x, 0), below = tanh(low * 0.5) * (exp(low) + 1);
  return where(less(number(x, 0), x), x, below * node.number("alpha"));
}

Gradients elu_gradient(const Differentiation& d) {
  const Value x = cast(d.input(0), Type::f32), dy = cast(*d.dy[0], Type::f32);
  const Value below = dy * exp(at_most(x, 0)) * d.node.number("alpha");
  return {cast(where(less(number(x, 0), x), dy, below), d.input(0).type().type)};
}

/// log(1 + u) of positive u, by its series where 1 + u would be rounded too much.
Value log_of_one_and(Value u) {
  const Value small = at_most(u, 1);  // the branch that is not taken stays finite
  const Value series = small * (small * (small * (small * -0.25 + 1.0 / 3) + -0.5) + 1);
  return where(less(u, number(u, 0.03)), series, log(u + 1));
}

Value softplus_of(const Node& node, Value x) {
  const double beta = node.number("beta"), threshold = node.number("threshold");
  const Value scaled = x * beta;
  const Value y = log_of_one_and(exp(at_most(scaled, threshold)));
  return where(less(number(x, threshold), scaled), x, y * (1 / beta));
}

Value hard_sigmoid_of(const Node&, Value x) { return clip(x + 3, 0, 6) * (1.0 / 6); }
Value hard_swish_of(const Node& node, Value x) { return x * hard_sigmoid_of(node, x); }

// Powers.

constexpr double kMostFactors = 64;

Value whole_power(Value x, uint32_t exponent) {
  if (exponent == 1) return x;
  const Value half = whole_power(x, exponent / 2);
  return exponent % 2 == 0 ? square(half) : square(half) * x;
}

/// By products and roots if a few suffice. Integer powers of negative numbers are not NaN.
Value pow_of(const Node& node, Value x) {
  const double exponent = node.number("exponent"), size = std::abs(exponent);
  if (exponent == 0) return where(equal(x, x), number(x, 1), number(x, 1));
  if (exponent == 1) return x * 1;
  const bool is_whole = size == std::floor(size);
  if (size > kMostFactors && is_whole) {
    const Value y = exp(log(abs(x)) * exponent);
    return std::fmod(size, 2) == 0 ? y : where(less(x, number(x, 0)), -y, y);
  }
  if (size > kMostFactors || size * 2 != std::floor(size * 2)) return exp(log(x) * exponent);
  const auto whole = static_cast<uint32_t>(size);
  Value y = is_whole ? whole_power(x, whole) : sqrt(x);
  if (!is_whole && whole > 0) y = y * whole_power(x, whole);
  return exponent < 0 ? reciprocal(y) : y;
}

Gradients pow_gradient(const Differentiation& d) {
  const double exponent = d.node.number("exponent");
  return {exponent == 0 ? *d.dy[0] * 0 : *d.dy[0] * pow(d.input(0), exponent - 1) * exponent};
}

// Activations as operations.

using Function = Value (*)(const Node&, Value);

Types infer_activations(const Signature& s) {
  require_dense(s);
  require_float(s, s.inputs[0]);
  for (const auto& [name, attribute] : s.attributes.attributes)
    if (const double value = s.attributes.number(name); !std::isfinite(value))
      throw UsageError(fmt::format("{}: {} is {}; it must be a finite number", s.operation, name, value));
  const auto given = [&](const char* name) { return s.attributes.attributes.contains(name); };
  if (s.operation == "clip" && !given("low") && !given("high"))
    throw UsageError("clip: it has no bound; give low, high, or both");
  if (given("low") && given("high") && s.attributes.number("low") > s.attributes.number("high"))
    throw UsageError(fmt::format("{}: the bounds [{}, {}] are none: the first must be the lower one",
                                 s.operation, s.attributes.number("low"), s.attributes.number("high")));
  if (given("beta") && s.attributes.number("beta") == 0)
    throw UsageError(fmt::format("{}: beta is 0; it must be another number", s.operation));
  return {s.inputs[0]};
}

template <Function function>
std::vector<Value> decompose_activations(const Decomposition& d) {
  const Value x = cast(d.inputs[0], Type::f32);
  return {cast(function(d.node, x), d.inputs[0].type().type)};
}

/// Cases of a list of attributes, with some types, and with bounds of inputs.
std::vector<Case> cases_of(const std::vector<Attributes>& all, double low = -4, double high = 4) {
  std::vector<Case> cases;
  for (const Attributes& attributes : all)
    cases.push_back(
        {.inputs = {{Type::f32, {3, 5, 7}, {}, {}}}, .attributes = attributes, .low = low, .high = high});
  for (Type type : {Type::f16, Type::bf16})
    cases.push_back({.inputs = {{type, {6, 21}, {}, {}}}, .attributes = all[0], .low = low, .high = high});
  return cases;
}

std::vector<Case> clip_cases() {
  return cases_of({{{"low", -0.77}, {"high", 2.1}}, {{"low", 0.3}}, {{"high", -1.6}}});
}
std::vector<Case> leaky_relu_cases() {
  return cases_of({{{"slope", 0.2}}, {{"slope", -0.5}}, {{"slope", 3.0}}, {{"slope", 0.0}}});
}
std::vector<Case> elu_cases() { return cases_of({{{"alpha", 1.0}}, {{"alpha", 1.7}}}); }
std::vector<Case> softplus_cases() {
  return cases_of({{{"beta", 1.0}, {"threshold", 20.0}}, {{"beta", 2.0}, {"threshold", 3.0}}});
}
/// Values of 16-bit types may lie exactly at a bound, where there is no derivative.
std::vector<Case> hard_cases() {
  std::vector<Case> cases = cases_of({{}});
  for (Case& c : cases) c.differentiable = c.inputs[0].type == Type::f32;
  return cases;
}

std::vector<Case> pow_cases() {
  std::vector<Attributes> all;
  for (double exponent : {3.0, 1.5, 0.5, -2.0, 2.25, 7.0, 0.0}) all.push_back({{"exponent", exponent}});
  return cases_of(all, 0.4, 1.6);
}

template <Function function>
constexpr Operation activation(std::string_view name, std::vector<Case> (*cases)(),
                               Gradients (*gradient)(const Differentiation&) = nullptr) {
  return {.name = name,
          .infer = infer_activations,
          .gradient = gradient,
          .cases = cases,
          .traits = {.keeps_samples = elements_keep_samples, .elementwise = true},
          .decompose = decompose_activations<function>};
}

constexpr Operation kActivations[] = {
    activation<clip_of>("clip", clip_cases, clip_gradient),
    activation<leaky_relu_of>("leaky_relu", leaky_relu_cases, leaky_relu_gradient),
    activation<elu_of>("elu", elu_cases, elu_gradient),
    activation<softplus_of>("softplus", softplus_cases),
    activation<hard_sigmoid_of>("hard_sigmoid", hard_cases),
    activation<hard_swish_of>("hard_swish", hard_cases),
    activation<pow_of>("pow", pow_cases, pow_gradient),
};

Value with_attributes(const char* operation, Value x, Attributes attributes = {}) {
  return x.owner().apply(operation, {x}, std::move(attributes))[0];
}

}  // namespace

std::span<const Operation> activations_operations() { return kActivations; }

Value clip(Value x, std::optional<double> low, std::optional<double> high) {
  if (!low && !high) return x;
  Attributes attributes;
  if (low) attributes["low"] = *low;
  if (high) attributes["high"] = *high;
  return with_attributes("clip", x, std::move(attributes));
}
Value leaky_relu(Value x, double slope) { return with_attributes("leaky_relu", x, {{"slope", slope}}); }
Value elu(Value x, double alpha) { return with_attributes("elu", x, {{"alpha", alpha}}); }
Value softplus(Value x, double beta, double threshold) {
  return with_attributes("softplus", x, {{"beta", beta}, {"threshold", threshold}});
}
Value hard_sigmoid(Value x) { return with_attributes("hard_sigmoid", x); }
Value hard_swish(Value x) { return with_attributes("hard_swish", x); }
Value pow(Value x, double exponent) { return with_attributes("pow", x, {{"exponent", exponent}}); }

}  // namespace tessera::graph
