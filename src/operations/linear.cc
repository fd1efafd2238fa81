// Products with a weight, dense or sparse: y = x · Wᵀ + b, and its gradients.
#include "operations/linear.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "graph/broadcast.h"
#include "lower/lowering.h"
#include "operations/absorb.h"
#include "operations/list.h"
#include "operations/stored_elements.h"
#include "operations/update.h"
#include "ops/map/elementwise.h"
#include "ops/map/gather.h"

namespace tessera::graph {
namespace {

Activation activation_of(const Node& node) { return activation_named(node.text("activation", "none")); }

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::relu: return x < 0 ? 0 : x;
    case Activation::gelu: return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::relu6: return x < 0 ? 0 : std::min(x, 6.0);
    case Activation::none: break;
  }
  return x;
}

void require_weight(const Signature& s, const TensorType& weight) {
  require_float(s, weight);
  if (weight.shape.size() != 2)
    throw UsageError(fmt::format("{}: the weight is {}, not a matrix", s.operation, to_string(weight)));
}

void require_linear(const Signature& s, bool holds, const TensorType& value, const TensorType& weight) {
  if (!holds)
    throw UsageError(
        fmt::format("{}: {} does not match the weight {}", s.operation, to_string(value), to_string(weight)));
}

/// Inputs of the forward product: X, W, and as far as there are a bias, and what is added to the product.
struct Forward {
  std::optional<size_t> bias, residual;

  Forward(const Node& node, size_t inputs) {
    if (node.integer("residual", 0) != 0) residual = --inputs;
    if (inputs > 2) bias = 2;
  }
};
Forward linear_forward_of(const Node& node) { return {node, node.inputs.size()}; }

Types infer_forward(const Signature& s) {
  const TensorType &x = s.inputs[0], &w = s.inputs[1];
  require_weight(s, w);
  require_linear(s, x.type == w.type && !x.pattern && !x.shape.empty() && x.cols() == w.shape[1], x, w);
  const Forward of(s.attributes, s.inputs.size());
  if (const size_t wanted = size_t{2} + of.bias.has_value() + of.residual.has_value();
      s.inputs.size() != wanted)
    throw UsageError(
        fmt::format("{}: there are {} inputs; it takes {}", s.operation, s.inputs.size(), wanted));
  if (of.bias)
    require_linear(s,
                   s.inputs[2].type == x.type && !s.inputs[2].pattern && s.inputs[2].elements() == w.shape[0],
                   s.inputs[2], w);
  TensorType y = x;
  y.shape.back() = w.shape[0];
  if (of.residual) require_linear(s, s.inputs[*of.residual] == y, s.inputs[*of.residual], w);
  if (activation_of(s.attributes) == Activation::relu6 && s.attributes.integer("residual", 0) != 0)
    throw UsageError(
        fmt::format("{}: relu6 cannot be part of a product to which a residual is added; apply it as an "
                    "operation of its own",
                    s.operation));
  return {y};
}

/// Inputs dY and W; and optionally a value of X's shape: the result is 0 where that is not positive.
Types infer_input_gradient(const Signature& s) {
  const TensorType &dy = s.inputs[0], &w = s.inputs[1];
  require_weight(s, w);
  require_linear(s, dy.type == w.type && !dy.pattern && !dy.shape.empty() && dy.cols() == w.shape[0], dy, w);
  TensorType dx = dy;
  dx.shape.back() = w.shape[1];
  if (s.inputs.size() > 2) require_linear(s, s.inputs[2] == dx, s.inputs[2], w);
  return {dx};
}

/// Inputs X, dY and W, whose values are not read.
Types infer_weight_gradient(const Signature& s) {
  const TensorType &x = s.inputs[0], &dy = s.inputs[1], &w = s.inputs[2];
  require_weight(s, w);
  require_linear(s, x.type == w.type && !x.pattern && x.cols() == w.shape[1], x, w);
  require_linear(s, dy.type == w.type && !dy.pattern && dy.cols() == w.shape[0] && dy.rows() == x.rows(), dy,
                 w);
  return {w};
}

Gradients linear_gradient(const Differentiation& d) {
  if (activation_of(d.node) != Activation::none)
    throw UsageError(
        "linear: an activation that is part of it has no gradient; apply it as an operation of its own");
  const Value dy = *d.dy[0], x = d.input(0), w = d.input(1);
  Gradients gradients = {d.graph.apply("linear_input_gradient", {dy, w})[0],
                         d.graph.apply("linear_weight_gradient", {x, dy, w})[0]};
  const Forward of = linear_forward_of(d.node);
  if (of.bias) gradients.push_back(sum_to(dy, d.input(2).type()));
  if (of.residual) gradients.push_back(dy);
  return gradients;
}

/// With z = y · W, dy = dz · Wᵀ; where a mask made z 0, nothing of dz counts.
Gradients input_gradient_gradient(const Differentiation& d) {
  const Value y = d.input(0), w = d.input(1);
  Value dz = *d.dy[0];
  if (d.node.inputs.size() > 2) dz = d.graph.apply("relu_gradient", {dz, d.input(2)})[0];
  return {d.graph.apply("linear", {dz, w})[0], d.graph.apply("linear_weight_gradient", {dz, y, w})[0]};
}

std::vector<Array> forward_reference(const Evaluation& e) {
  const TensorType& w = e.input_type(1);
  const uint32_t n = e.input_type(0).rows(), m = w.shape[0], k = w.shape[1];
  Array y(e.output_type(0).elements());
  each_weight(w, [&](uint32_t r, uint32_t c, uint64_t i) {
    for (uint32_t j = 0; j < n; ++j)
      y[uint64_t{j} * m + r] += (*e.inputs[1])[i] * (*e.inputs[0])[uint64_t{j} * k + c];
  });
  const Forward of = linear_forward_of(e.node);
  for (uint64_t i = 0; i < y.size(); ++i) {
    if (of.bias) y[i] += (*e.inputs[2])[i % m];
    if (of.residual) y[i] += (*e.inputs[*of.residual])[i];
    y[i] = activate(activation_of(e.node), y[i]);
  }
  return {y};
}

std::vector<Array> input_gradient_reference(const Evaluation& e) {
  const TensorType& w = e.input_type(1);
  const uint32_t n = e.input_type(0).rows(), m = w.shape[0], k = w.shape[1];
  Array dx(e.output_type(0).elements());
  each_weight(w, [&](uint32_t r, uint32_t c, uint64_t i) {
    for (uint32_t j = 0; j < n; ++j)
      dx[uint64_t{j} * k + c] += (*e.inputs[1])[i] * (*e.inputs[0])[uint64_t{j} * m + r];
  });
  if (e.inputs.size() > 2)
    for (uint64_t i = 0; i < dx.size(); ++i)
      if ((*e.inputs[2])[i] <= 0) dx[i] = 0;
  return {dx};
}

std::vector<Array> weight_gradient_reference(const Evaluation& e) {
  const TensorType& w = e.input_type(2);
  const uint32_t n = e.input_type(0).rows(), m = w.shape[0], k = w.shape[1];
  Array dw(w.elements());
  each_weight(w, [&](uint32_t r, uint32_t c, uint64_t i) {
    for (uint32_t j = 0; j < n; ++j)
      dw[i] += (*e.inputs[0])[uint64_t{j} * k + c] * (*e.inputs[1])[uint64_t{j} * m + r];
  });
  return {dw};
}

/// X and Y as the weight's product takes them.
struct Activations {
  ValueLayout x, y;
};

Activations activations_of(Lowering& l, const Node& node) {
  const auto& [operand, product] = *node.operation->traits.weight;
  LinearWeight& weight = l.weight(node.inputs[operand]);
  auto parted = weight.parted_activations(product, l.graph().type(node.inputs[0]).rows());
  if (!parted) return {weight.activations(), weight.activations()};
  // Matrices of graph values have one row per sample.
  for (ops::OperandLayout* layout : {&parted->x, &parted->y}) layout->transposed = !layout->transposed;
  return {l.parted(parted->x), l.parted(parted->y)};
}

/// The bias is a row on hosts and a column on tiles.
std::vector<LayoutChoice> forward_layouts(Lowering& l, const Node& node) {
  const auto [x, y] = activations_of(l, node);
  LayoutChoice choice{{x, l.weight_layout(node.inputs[1])}, {y}};
  const Forward of = linear_forward_of(node);
  if (of.bias) choice.inputs.push_back(l.on_host() ? kRows : kTransposed);
  if (of.residual) choice.inputs.push_back(y);
  return {choice};
}

std::vector<LayoutChoice> input_gradient_layouts(Lowering& l, const Node& node) {
  const auto [x, y] = activations_of(l, node);
  LayoutChoice choice{{y, l.weight_layout(node.inputs[1])}, {x}};
  if (node.inputs.size() > 2) choice.inputs.push_back(x);
  return {choice};
}

std::vector<LayoutChoice> weight_gradient_layouts(Lowering& l, const Node& node) {
  const auto [x, y] = activations_of(l, node);
  const ValueLayout weight = l.weight_layout(node.inputs[2]);
  return {{{x, y, weight}, {weight}}};
}

/// Runs the product with all operands in the types of the weight's products: on a host, 16-bit values are
/// converted before and after it, and so is a weight with products of several types.
void run(Lowering& l, LinearWeight& weight, LinearCall call) {
  const Type type = weight.activation_type_of(l.builder(), call);
  ops::Operand& result = call.product == ProductKind::forward          ? call.y
                         : call.product == ProductKind::input_gradient ? call.x
                                                                       : call.values;
  const Type wanted = call.product == ProductKind::sddmm ? weight.gradient_type() : type;
  const ops::Operand given = result;
  for (ops::Operand* operand : {&call.x, &call.y})
    if (operand != &result) *operand = l.as_type(*operand, type);
  if (call.product != ProductKind::sddmm) call.values = l.as_type(call.values, weight.type());
  if (call.bias) call.bias = l.as_type(*call.bias, Type::f32);
  if (l.builder().type_of(given) != wanted) {
    result = l.temporary("result", wanted, given.rows(), given.cols());
    if (call.adds) l.convert_type(given, result);
  }
  const std::optional<ops::Operand> mask = call.mask;
  if (!weight.takes_mask()) call.mask.reset();
  l.run(weight.add(l.builder(), call));
  l.convert_type(result, given);
  if (mask && !call.mask)
    l.add(ops::BinaryProblem{kernels::Binary::relu_gradient, l.builder().type_of(given), given.rows(),
                             given.cols()},
          {given, *mask, given});
}

void lower_forward(Lowering& l, const Node& node) { lower_product(l, node, {}); }

void lower_input_gradient(Lowering& l, const Node& node) { lower_product_input_gradient(l, node, {}); }

/// The update that is the only use of a gradient, if it may run immediately; null: there is none.
const Node* sole_update(const Lowering& l, const Node& node) {
  const Node* update = l.sole_user(0);
  if (update == nullptr || !is_update(*update) || update->inputs[0] != node.outputs[0] ||
      !(l.layout_of(node.outputs[0]) == l.layout_of(update->outputs[0])) || !may_update_in_place(l, *update))
    return nullptr;
  const bool has_inputs = std::ranges::all_of(
      update->inputs, [&](ValueId id) { return id == node.outputs[0] || l.is_computed(id); });
  return has_inputs ? update : nullptr;
}

void lower_weight_gradient(Lowering& l, const Node& node) { lower_product_gradient(l, node, {}); }

/// Absorbs the addition of a value of the result's type.
std::optional<Node> absorb_sum(const Graph& graph, const Node& own, const Node& next) {
  std::optional<Node> both = absorb_addend(graph, own, next);
  if (both) both->attributes["residual"] = int64_t{1};
  return both;
}

/// The constant number that is the other input of an operation on the result.
std::optional<double> number_beside(const Graph& graph, const Node& own, const Node& next) {
  const ValueInfo& other = graph.info(other_input(own, next));
  const bool keeps_shape = graph.type(next.outputs[0]) == graph.type(own.outputs[0]);
  if (other.kind != Kind::constant || other.type.elements() != 1 || !keeps_shape) return {};
  return other.initial.values->front();
}

/// The activation that combines a node's activation with the operation after it; none: there is no such
/// activation.
std::optional<Activation> absorbed_activation(const Graph& graph, const Node& own, const Node& next) {
  using enum Activation;
  const std::string_view name = next.operation->name;
  const Activation before = activation_of(own);
  const bool has_residual = own.attributes.contains("residual");
  if (before == relu && !has_residual && name == "minimum" && number_beside(graph, own, next) == 6)
    return relu6;
  if (before != none) return {};
  if (name == "relu" || (name == "maximum" && number_beside(graph, own, next) == 0)) return relu;
  for (const Activation activation : {gelu, gelu_tanh, silu})
    if (name == name_of(activation)) return activation;
  return {};
}

std::optional<Node> absorb_next(const Graph& graph, const Node& own, const Node& next) {
  const bool is_sum = activation_of(own) == Activation::none && !own.attributes.contains("residual");
  if (is_sum && next.operation->name == "add") return absorb_sum(graph, own, next);
  const std::optional<Activation> activation = absorbed_activation(graph, own, next);
  if (!activation) return {};
  Node both = own;
  both.attributes["activation"] = std::string(name_of(*activation));
  both.outputs = next.outputs;
  return both;
}

std::optional<Node> absorb_mask(const Graph& graph, const Node& own, const Node& next) {
  if (next.operation->name != "relu_gradient" || next.inputs[0] != own.outputs[0] || own.inputs.size() > 2)
    return {};
  const ValueId mask = next.inputs[1];
  if (!(graph.type(mask) == graph.type(next.outputs[0]))) return {};
  Node both = own;
  both.inputs.push_back(mask);
  both.outputs = next.outputs;
  return both;
}

std::vector<TensorType> weights() {
  return {dense_type(Type::f32, {24, 40}), dense_type(Type::f32, {10, 33}), dense_type(Type::f16, {24, 40}),
          sparse_type(32, 48, 8, false),   sparse_type(40, 64, 16, true),   sparse_type(24, 40, 1, false)};
}

TensorType rows(const TensorType& w, Shape leading, uint32_t features) {
  leading.push_back(features);
  return {w.type, std::move(leading), {}, {}};
}

bool linear_keeps_samples(const Divided& divided) {
  Divided product = divided;
  if (const auto residual = linear_forward_of(divided.node).residual) {
    if (!divided.operands[*residual]) return false;
    product.operands.pop_back();
  }
  return rows_keep_samples(product);
}

bool input_gradient_keeps_samples(const Divided& divided) {
  return divided.operands.size() == 2 && rows_keep_samples(divided);
}

std::vector<Case> forward_cases() {
  std::vector<Case> cases;
  for (const TensorType& w : weights()) {
    cases.push_back({{rows(w, {3, 7}, w.shape[1]), w}});
    cases.push_back({.inputs = {rows(w, {16}, w.shape[1]), w, {w.type, {w.shape[0]}, {}, {}}},
                     .attributes = {{"activation", "relu"}},
                     .differentiable = false});
    for (const Activation activation :
         {Activation::gelu, Activation::gelu_tanh, Activation::silu, Activation::relu6})
      cases.push_back({.inputs = {rows(w, {5}, w.shape[1]), w, {w.type, {w.shape[0]}, {}, {}}},
                       .attributes = {{"activation", std::string(name_of(activation))}},
                       .low = -4,
                       .high = 4,
                       .differentiable = false});
    cases.push_back({.inputs = {rows(w, {3, 7}, w.shape[1]),
                                w,
                                {w.type, {w.shape[0]}, {}, {}},
                                rows(w, {3, 7}, w.shape[0])},
                     .attributes = {{"residual", int64_t{1}}}});
    cases.push_back({.inputs = {rows(w, {2, 9}, w.shape[1]), w, rows(w, {2, 9}, w.shape[0])},
                     .attributes = {{"residual", int64_t{1}}, {"activation", "relu"}},
                     .differentiable = false});
  }
  return cases;
}

std::vector<Case> input_gradient_cases() {
  std::vector<Case> cases;
  for (const TensorType& w : weights()) cases.push_back({{rows(w, {3, 7}, w.shape[0]), w}});
  const TensorType w = dense_type(Type::f32, {24, 40});
  cases.push_back({.inputs = {rows(w, {21}, 24), w, rows(w, {21}, 40)}, .differentiable = false});
  return cases;
}

std::vector<Case> weight_gradient_cases() {
  std::vector<Case> cases;
  for (const TensorType& w : weights())
    cases.push_back(
        {.inputs = {rows(w, {21}, w.shape[1]), rows(w, {21}, w.shape[0]), w}, .differentiable = false});
  return cases;
}

constexpr Operation kLinear[] = {
    {"linear",
     2,
     4,
     infer_forward,
     linear_gradient,
     forward_reference,
     forward_layouts,
     lower_forward,
     forward_cases,
     {.weight = {{1, ProductKind::forward}},
      .keeps_samples = linear_keeps_samples,
      .kind = OperationKind::product},
     absorb_next},
    {"linear_input_gradient",
     2,
     3,
     infer_input_gradient,
     input_gradient_gradient,
     input_gradient_reference,
     input_gradient_layouts,
     lower_input_gradient,
     input_gradient_cases,
     {.weight = {{1, ProductKind::input_gradient}},
      .keeps_samples = input_gradient_keeps_samples,
      .kind = OperationKind::product},
     absorb_mask},
    {"linear_weight_gradient",
     3,
     3,
     infer_weight_gradient,
     nullptr,
     weight_gradient_reference,
     weight_gradient_layouts,
     lower_weight_gradient,
     weight_gradient_cases,
     {.weight = {{2, ProductKind::sddmm}}, .kind = OperationKind::product}},
};

}  // namespace

namespace {

/// The activation as an operation of its own; relu6 has none.
kernels::Unary unary_of(Activation activation) {
  switch (activation) {
    case Activation::gelu: return kernels::Unary::gelu;
    case Activation::gelu_tanh: return kernels::Unary::gelu_tanh;
    case Activation::silu: return kernels::Unary::silu;
    default: return kernels::Unary::relu;
  }
}

/// A caller may bind a transposed array, which taps would read element by element.
ops::Operand with_contiguous_rows(Lowering& l, const ops::Operand& x) {
  const program::Variable& variable = l.builder().program().variable(x.variable);
  if (!variable.is_external() && !variable.is_argument()) return x;
  const ops::Operand copy = l.temporary("images", l.builder().type_of(x), x.rows(), x.cols());
  l.add(ops::CopyProblem{l.builder().type_of(x), x.rows(), x.cols()}, {x, copy});
  return copy;
}

}  // namespace

std::span<const Operation> linear_operations() { return kLinear; }

void lower_product(Lowering& l, const Node& node, const std::optional<kernels::Window>& window) {
  LinearWeight& weight = l.weight(node.inputs[1]);
  const Forward of = linear_forward_of(node);
  const bool adds = of.residual && weight.can_add(), fuses = adds || !of.residual;
  if (adds) l.begin_output_with(0, *of.residual);
  LinearCall call{.product = ProductKind::forward,
                  .values = l.input(1),
                  .x = l.input(0),
                  .y = l.output(0),
                  .n = l.graph().type(node.outputs[0]).rows(),
                  .activation = fuses ? activation_of(node) : Activation::none,
                  .adds = adds,
                  .window = window};
  if (of.bias) call.bias = l.input(2);
  if (window && l.input_layout(0).transposed) call.x = with_contiguous_rows(l, call.x);
  run(l, weight, call);
  if (of.residual && !adds)
    l.add(ops::BinaryProblem{kernels::Binary::add, l.builder().type_of(call.y), call.y.rows(), call.y.cols()},
          {call.y, l.input(*of.residual), call.y});
  if (!fuses && activation_of(node) != Activation::none)
    l.add(ops::UnaryProblem{unary_of(activation_of(node)), l.builder().type_of(call.y), call.y.rows(),
                            call.y.cols()},
          {call.y, call.y});
}

void lower_product_input_gradient(Lowering& l, const Node& node,
                                  const std::optional<kernels::Window>& window) {
  LinearCall call{.product = ProductKind::input_gradient,
                  .values = l.input(1),
                  .x = l.output(0),
                  .y = l.input(0),
                  .n = l.graph().type(node.inputs[0]).rows(),
                  .window = window};
  if (node.inputs.size() > 2) call.mask = l.input(2);
  run(l, l.weight(node.inputs[1]), call);
}

/// With the update that alone uses the gradient, if the weight has a form for both.
void lower_product_gradient(Lowering& l, const Node& node, const std::optional<kernels::Window>& window) {
  LinearWeight& weight = l.weight(node.inputs[2]);
  LinearCall call{.product = ProductKind::sddmm,
                  .x = l.input(0),
                  .y = l.input(1),
                  .n = l.graph().type(node.inputs[1]).rows(),
                  .window = window};
  if (window && l.input_layout(0).transposed) call.x = with_contiguous_rows(l, call.x);
  if (const Node* update = sole_update(l, node)) {
    if (const auto step = weight.add_updating(l.builder(), call, update_of(l, *update))) {
      l.run(*step);
      return l.skip(*update);
    }
  }
  call.values = l.output(0);
  run(l, weight, call);
}

Value linear(Value x, Value weight, std::optional<Value> bias) {
  std::vector<Value> inputs = {x, weight};
  if (bias) inputs.push_back(*bias);
  return x.owner().apply("linear", inputs)[0];
}

}  // namespace tessera::graph
