// Functions of each element of one value, or of two.
#include "ops/map/elementwise.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/integer_types.h"
#include "lower/lowering.h"
#include "operations/broadcast_operands.h"
#include "operations/constants.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

using kernels::Binary;
using kernels::Unary;

// One operand.

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double normal_distribution(double x) { return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)); }
double gelu_slope(double x) {
  return normal_distribution(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
}

/// The argument of the sigmoid in GELU's tanh form, and its slope.
double gelu_tanh_argument(double x) {
  return 2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}
double gelu_tanh_slope(double x) {
  const double s = logistic(gelu_tanh_argument(x));
  return s + x * s * (1 - s) * 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}
double silu_slope(double x) { return logistic(x) * (1 + x * (1 - logistic(x))); }

template <Unary op>
double evaluate(double x, double factor) {
  switch (op) {
    case Unary::relu: return x < 0 ? 0 : x;
    case Unary::gelu: return x * normal_distribution(x);
    case Unary::gelu_tanh: return x * logistic(gelu_tanh_argument(x));
    case Unary::silu: return x * logistic(x);
    case Unary::neg: return -x;
    case Unary::scale: return factor * x;
    case Unary::exp: return std::exp(x);
    case Unary::log: return std::log(x);
    case Unary::sqrt: return std::sqrt(x);
    case Unary::rsqrt: return 1 / std::sqrt(x);
    case Unary::reciprocal: return 1 / x;
    case Unary::tanh: return std::tanh(x);
    case Unary::sigmoid: return logistic(x);
    case Unary::erf: return std::erf(x);
    case Unary::sin: return std::sin(x);
    case Unary::cos: return std::cos(x);
    case Unary::square: return x * x;
    case Unary::abs: return std::abs(x);
    case Unary::offset: return x + factor;
  }
  return x;
}

constexpr bool has_factor(Unary op) { return op == Unary::scale || op == Unary::offset; }
/// Whether 0 becomes 0.
constexpr bool keeps_zero(Unary op) {
  return op == Unary::relu || op == Unary::gelu || op == Unary::gelu_tanh || op == Unary::silu ||
         op == Unary::neg || op == Unary::scale || op == Unary::sqrt || op == Unary::tanh ||
         op == Unary::erf || op == Unary::sin || op == Unary::square || op == Unary::abs;
}

template <Unary op>
double factor_of(const Node& node) {
  return has_factor(op) ? node.number("factor") : 1;
}

Value with_factor(const char* operation, Value x, double factor) {
  return x.owner().apply(operation, {x}, {{"factor", factor}})[0];
}
Value apply(const char* operation, Value a, Value b) { return a.owner().apply(operation, {a, b})[0]; }

template <Unary op>
Types infer_unary(const Signature& s) {
  require_float(s, s.inputs[0]);
  factor_of<op>(s.attributes);
  if (s.inputs[0].pattern && !keeps_zero(op))
    throw UsageError(fmt::format("{} of a sparse value would fill its zeros", s.operation));
  return {s.inputs[0]};
}

template <Unary op>
Gradients unary_gradient(const Differentiation& d) {
  const Value dy = *d.dy[0], x = d.input(0), y = d.output(0);
  switch (op) {
    case Unary::relu: return {apply("relu_gradient", dy, y)};
    case Unary::gelu: return {apply("gelu_gradient", dy, x)};
    case Unary::gelu_tanh: return {apply("gelu_tanh_gradient", dy, x)};
    case Unary::silu: return {apply("silu_gradient", dy, x)};
    case Unary::neg: return {-dy};
    case Unary::scale: return {dy * d.node.number("factor")};
    case Unary::exp: return {dy * y};
    case Unary::log: return {dy / x};
    case Unary::sqrt: return {dy / y * 0.5};
    case Unary::rsqrt: return {dy * y / x * -0.5};
    case Unary::reciprocal: return {-(dy * square(y))};
    case Unary::tanh: return {apply("tanh_gradient", dy, y)};
    case Unary::sigmoid: return {apply("sigmoid_gradient", dy, y)};
    case Unary::erf: return {dy * exp(-square(x)) * std::numbers::inv_sqrtpi * 2};
    case Unary::sin: return {dy * cos(x)};
    case Unary::cos: return {-(dy * sin(x))};
    case Unary::square: return {dy * x * 2};
    case Unary::abs: return {apply("relu_gradient", dy, x) - apply("relu_gradient", dy, -x)};
    case Unary::offset: return {dy};
  }
  return {};
}

template <Unary op>
std::vector<Array> unary_reference(const Evaluation& e) {
  const double factor = factor_of<op>(e.node);
  Array y(e.inputs[0]->size());
  std::ranges::transform(*e.inputs[0], y.begin(), [&](double x) { return evaluate<op>(x, factor); });
  return {y};
}

template <Unary op>
void lower_unary(Lowering& l, const Node& node) {
  const ops::Operand in = l.input(0), out = l.output_beside(0, in);
  l.add(ops::UnaryProblem{op, l.builder().type_of(in), in.rows(), in.cols(),
                          static_cast<float>(factor_of<op>(node))},
        {in, out});
}

template <Unary op>
std::vector<Case> unary_cases() {
  const bool positive =
      op == Unary::log || op == Unary::sqrt || op == Unary::rsqrt || op == Unary::reciprocal;
  std::vector<Case> cases;
  for (Type type : {Type::f32, Type::f16, Type::bf16})
    cases.push_back({.inputs = {{type, {3, 5, 7}, {}, {}}},
                     .attributes = has_factor(op) ? Attributes{{"factor", 0.75}} : Attributes{},
                     .low = positive ? 0.3 : -2,
                     .high = 2});
  return cases;
}

template <Unary op>
constexpr Operation unary(std::string_view name) {
  return {name,
          1,
          1,
          infer_unary<op>,
          unary_gradient<op>,
          unary_reference<op>,
          elementwise_layouts,
          lower_unary<op>,
          unary_cases<op>,
          {.keeps_zeros = keeps_zero(op) ? always_keeps_zeros : nullptr,
           .keeps_samples = elements_keep_samples,
           .elementwise = true,
           .combines = op == Unary::scale    ? Combines::multiplies
                       : op == Unary::offset ? Combines::adds
                                             : Combines::otherwise}};
}

// Two operands.

template <Binary op>
double evaluate(double a, double b, double factor) {
  switch (op) {
    case Binary::add: return a + b;
    case Binary::sub: return a - b;
    case Binary::mul: return a * b;
    case Binary::div: return a / b;
    case Binary::fmod: return std::fmod(a, b);
    case Binary::add_scaled: return a + factor * b;
    case Binary::maximum: return std::isnan(a) || a > b ? a : b;
    case Binary::minimum: return std::isnan(a) || a < b ? a : b;
    case Binary::equal: return a == b ? 1 : 0;
    case Binary::not_equal: return a != b ? 1 : 0;
    case Binary::less: return a < b ? 1 : 0;
    case Binary::less_equal: return a <= b ? 1 : 0;
    case Binary::relu_gradient: return b <= 0 ? 0 : a;
    case Binary::gelu_gradient: return a * gelu_slope(b);
    case Binary::gelu_tanh_gradient: return a * gelu_tanh_slope(b);
    case Binary::silu_gradient: return a * silu_slope(b);
    case Binary::tanh_gradient: return a * (1 - b * b);
    case Binary::sigmoid_gradient: return a * b * (1 - b);
  }
  return a;
}

template <Binary op>
double factor_of(const Node& node) {
  return op == Binary::add_scaled ? node.number("factor") : 1;
}

template <Binary op>
bool binary_keeps_zeros(const std::vector<bool>& padded) {
  switch (op) {
    case Binary::mul:
    case Binary::relu_gradient:
    case Binary::sigmoid_gradient: return padded[0] || padded[1];
    case Binary::div:
    case Binary::fmod: return padded[0] && !padded[1];
    case Binary::gelu_gradient:
    case Binary::gelu_tanh_gradient:
    case Binary::silu_gradient:
    case Binary::tanh_gradient: return padded[0];
    case Binary::equal:
    case Binary::less_equal: return false;
    default: return padded[0] && padded[1];
  }
}

template <Binary op>
Types infer_binary(const Signature& s) {
  const auto require = kernels::takes_integers(op) ? require_number : require_float;
  for (const TensorType& type : s.inputs) require(s, type);
  factor_of<op>(s.attributes);
  const TensorType &a = s.inputs[0], &b = s.inputs[1];
  const auto fail = [&](std::string_view why) {
    throw UsageError(fmt::format("{}: {} and {} {}", s.operation, to_string(a), to_string(b), why));
  };
  if (a.type != b.type) fail("have different types: cast one");
  TensorType out = a.pattern ? a : b;
  if (!out.pattern) {
    const std::optional<Shape> shape = common_shape(a.shape, b.shape);
    if (!shape) fail("cannot be broadcast to one shape");
    out.shape = *shape;
  } else if (!binary_keeps_zeros<op>({a.pattern != nullptr, b.pattern != nullptr})) {
    fail("would fill the zeros of a sparse value");
  }
  if (!can_broadcast(a, out) || !can_broadcast(b, out)) fail("cannot be broadcast to one shape");
  return {out};
}

template <Binary op>
Gradients binary_gradient(const Differentiation& d) {
  const Value dy = *d.dy[0], a = d.input(0), b = d.input(1);
  const auto both = [&](Value da, Value db) { return Gradients{sum_to(da, a.type()), sum_to(db, b.type())}; };
  // Equal operands get half of the gradient each, as in PyTorch.
  const auto by_difference = [&](Value difference) {
    const Value half = dy * 0.5;
    const Value more = apply("relu_gradient", half, difference) - apply("relu_gradient", half, -difference);
    return both(half + more, half - more);
  };
  switch (op) {
    case Binary::add: return both(dy, dy);
    case Binary::sub: return {sum_to(dy, a.type()), -sum_to(dy, b.type())};
    case Binary::add_scaled: return both(dy, dy * d.node.number("factor"));
    case Binary::mul: return both(dy * b, dy * a);
    case Binary::div: return both(dy / b, -(dy * d.output(0) / b));
    case Binary::fmod: return both(dy, dy * ((d.output(0) - a) / b));
    case Binary::maximum: return by_difference(a - b);
    case Binary::minimum: return by_difference(b - a);
    default: return {{}, {}};
  }
}

template <Binary op>
std::vector<Array> binary_reference(const Evaluation& e) {
  const TensorType& type = e.output_type(0);
  const ArrayIndex a = broadcast_index(e.input_type(0), type), b = broadcast_index(e.input_type(1), type);
  const double factor = factor_of<op>(e.node);
  Array y(type.elements());
  for (uint64_t i = 0; i < y.size(); ++i) {
    const double x = (*e.inputs[0])[a(i)], with = (*e.inputs[1])[b(i)];
    if (!is_integer(type.type))
      y[i] = evaluate<op>(x, with, factor);
    else
      kernels::with_integer_type(type.type, [&]<class T>(T) {
        y[i] = kernels::of_integers<op>(static_cast<T>(x), static_cast<T>(with));
      });
  }
  return {y};
}

template <Binary op>
void lower_binary(Lowering& l, const Node& node) {
  const ops::Operand a = broadcast_input(l, node, 0), b = broadcast_input(l, node, 1);
  const ops::Operand out = l.output_beside(0, a.box.elements() < b.box.elements() ? b : a);
  l.add(
      ops::BinaryProblem{op, l.builder().type_of(out), out.rows(), out.cols(),
                         static_cast<float>(factor_of<op>(node)), broadcast_of(a, out), broadcast_of(b, out)},
      {a, b, out});
}

template <Binary op>
std::vector<Case> binary_cases() {
  const Attributes attributes = op == Binary::add_scaled ? Attributes{{"factor", -0.5}} : Attributes{};
  std::vector<Case> cases;
  const auto add = [&](Type type, Shape a, Shape b) {
    cases.push_back({.inputs = {{type, std::move(a), {}, {}}, {type, std::move(b), {}, {}}},
                     .attributes = attributes,
                     .low = op == Binary::div || op == Binary::fmod ? 0.4 : -2,
                     .high = 2,
                     .below = 4,
                     .differentiable = !is_integer(type)});
  };
  for (Type type : {Type::f32, Type::f16, Type::bf16}) add(type, {4, 33}, {4, 33});
  add(Type::f32, {2, 5, 9}, {9});
  add(Type::f32, {12, 9}, {12, 1});
  add(Type::f32, {12, 9}, {});
  add(Type::f32, {}, {12, 9});
  add(Type::f32, {12, 1}, {9});
  add(Type::f32, {3, 1, 5, 9}, {4, 1, 9});
  add(Type::f16, {2, 1, 4, 1}, {2, 3, 4, 7});
  if (!kernels::takes_integers(op)) return cases;
  add(Type::u32, {12, 9}, {9});
  add(Type::i32, {12, 9}, {9});
  return cases;
}

constexpr bool is_differentiable(Binary op) {
  return op == Binary::add || op == Binary::sub || op == Binary::add_scaled || op == Binary::mul ||
         op == Binary::div || op == Binary::fmod || op == Binary::maximum || op == Binary::minimum;
}

template <Binary op>
constexpr Operation binary(std::string_view name) {
  return {name,
          2,
          2,
          infer_binary<op>,
          is_differentiable(op) ? binary_gradient<op> : nullptr,
          binary_reference<op>,
          broadcasting_layouts,
          lower_binary<op>,
          binary_cases<op>,
          {.keeps_zeros = binary_keeps_zeros<op>,
           .keeps_samples = broadcasting_keeps_samples,
           .elementwise = true,
           .combines = op == Binary::mul   ? Combines::multiplies
                       : op == Binary::div ? Combines::divides
                       : op == Binary::add ? Combines::adds
                                           : Combines::otherwise,
           .zero_derivative = kernels::is_comparison(op)}};
}

constexpr Operation kElementwise[] = {
#define TESSERA_OPERATION(name) unary<Unary::name>(#name),
    TESSERA_UNARY_OPERATIONS(TESSERA_OPERATION)
#undef TESSERA_OPERATION
#define TESSERA_OPERATION(name) binary<Binary::name>(#name),
        TESSERA_BINARY_OPERATIONS(TESSERA_OPERATION)
#undef TESSERA_OPERATION
};

Value one(const char* operation, Value x) { return x.owner().apply(operation, {x})[0]; }
bool of_integers(Value x) { return is_integer(x.type().type); }

}  // namespace

std::span<const Operation> elementwise_operations() { return kElementwise; }

Value relu(Value x) { return one("relu", x); }
Value gelu(Value x) { return one("gelu", x); }
Value gelu_tanh(Value x) { return one("gelu_tanh", x); }
Value silu(Value x) { return one("silu", x); }
Value tanh(Value x) { return one("tanh", x); }
Value sigmoid(Value x) { return one("sigmoid", x); }
Value exp(Value x) { return one("exp", x); }
Value log(Value x) { return one("log", x); }
Value sqrt(Value x) { return one("sqrt", x); }
Value rsqrt(Value x) { return one("rsqrt", x); }
Value erf(Value x) { return one("erf", x); }
Value sin(Value x) { return one("sin", x); }
Value cos(Value x) { return one("cos", x); }
Value square(Value x) { return of_integers(x) ? x * x : one("square", x); }
Value abs(Value x) {
  if (x.type().type == Type::u32) return x;
  return of_integers(x) ? maximum(x, -x) : one("abs", x);
}
Value reciprocal(Value x) { return one("reciprocal", x); }
Value operator-(Value x) { return of_integers(x) ? number(x, 0) - x : one("neg", x); }
Value operator+(Value a, Value b) { return apply("add", a, b); }
Value operator-(Value a, Value b) { return apply("sub", a, b); }
Value operator*(Value a, Value b) { return apply("mul", a, b); }
Value operator/(Value a, Value b) { return apply("div", a, b); }
Value operator+(Value a, double b) {
  if (!of_integers(a)) return with_factor("offset", a, b);
  return b < 0 ? a - number(a, -b) : a + number(a, b);
}
Value operator*(Value a, double b) { return of_integers(a) ? a * number(a, b) : with_factor("scale", a, b); }
Value equal(Value a, Value b) { return apply("equal", a, b); }
Value not_equal(Value a, Value b) { return apply("not_equal", a, b); }
Value less(Value a, Value b) { return apply("less", a, b); }
Value less_equal(Value a, Value b) { return apply("less_equal", a, b); }
Value maximum(Value a, Value b) { return apply("maximum", a, b); }
Value minimum(Value a, Value b) { return apply("minimum", a, b); }

}  // namespace tessera::graph
