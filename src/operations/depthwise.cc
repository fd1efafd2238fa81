// Convolutions of each channel by itself.
#include "ops/map/depthwise.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <limits>

#include "graph/broadcast.h"
#include "lower/lowering.h"
#include "operations/absorb.h"
#include "operations/list.h"
#include "operations/window.h"

namespace tessera::graph {
namespace {

using kernels::Window;

/// Bounds of the results, which may be infinite.
double low_of(const Node& node) { return node.number("low", -std::numeric_limits<double>::infinity()); }
double high_of(const Node& node) { return node.number("high", std::numeric_limits<double>::infinity()); }

/// x [samples, sizes…, channels], a weight [channels, taps], and if there is one, a bias [channels].
Types infer_depthwise(const Signature& s) {
  const TensorType &x = s.inputs[0], &w = s.inputs[1];
  require_float(s, x);
  require_dense(s);
  const Window window = window_over(s.operation, s.attributes, x.shape);
  if (!(w == TensorType{x.type, {x.cols(), window.taps()}, {}, {}}))
    throw UsageError(fmt::format("{}: the weight {} does not have {} taps for each channel of {}",
                                 s.operation, to_string(w), window.taps(), to_string(x)));
  if (s.inputs.size() > 2 && (s.inputs[2].type != x.type || s.inputs[2].elements() != x.cols()))
    throw UsageError(fmt::format("{}: the bias {} is not one number for each channel of {}", s.operation,
                                 to_string(s.inputs[2]), to_string(x)));
  if (!(low_of(s.attributes) <= high_of(s.attributes)))
    throw UsageError(fmt::format("{}: the bounds [{}, {}] are none", s.operation, low_of(s.attributes),
                                 high_of(s.attributes)));
  return {{x.type, positions_of(x.shape, window, x.cols()), {}, {}}};
}

/// [positions, taps, channels] of what a window sees.
Value by_tap(Value seen, uint32_t taps) {
  const TensorType& type = seen.type();
  return reshape(seen, {type.rows(), taps, type.cols() / taps});
}

std::vector<Value> decompose_depthwise(const Decomposition& d) {
  const Type type = d.inputs[0].type().type;
  const Value x = cast(d.inputs[0], Type::f32), w = cast(d.inputs[1], Type::f32);
  const Value seen = x.graph->apply("patches", {x}, window_attributes(d.node))[0];
  Shape shape = seen.shape();
  shape.back() = x.type().cols();
  Value y = sum(by_tap(seen, w.type().cols()) * transpose(w), {1});
  if (d.inputs.size() > 2) y = y + reshape(cast(d.inputs[2], Type::f32), {w.shape()[0]});
  const auto bound = [&](const char* name) {
    return d.node.attributes.contains(name) ? std::optional(d.node.number(name)) : std::nullopt;
  };
  return {reshape(cast(clip(y, bound("low"), bound("high")), type), shape)};
}

void lower_depthwise(Lowering& l, const Node& node) {
  const Shape& image = l.graph().type(node.inputs[0]).shape;
  const ops::PatchesProblem of{l.builder().type_of(l.input(0)), image[0], image.back(),
                               window_over(node.operation->name, node, image), l.input_layout(0).transposed};
  const bool has_bias = node.inputs.size() > 2;
  std::vector<ops::Operand> operands = {l.input(0), l.input(1)};
  if (has_bias) operands.push_back(l.input(2));
  operands.push_back(l.output(0));
  l.add(ops::DepthwiseProblem{of, has_bias, static_cast<float>(low_of(node)),
                              static_cast<float>(high_of(node))},
        operands);
}

std::vector<LayoutChoice> depthwise_layouts(Lowering&, const Node& node) {
  std::vector<LayoutChoice> choices;
  for (const ValueLayout& layout : {kRows, kTransposed}) {
    choices.push_back({{layout, kRows}, {layout}});
    if (node.inputs.size() > 2) choices.back().inputs.push_back(kRows);
  }
  return choices;
}

/// A bias of each channel.
std::optional<Node> absorb_bias(const Graph& graph, const Node& own, const Node& next) {
  const ValueId other = other_input(own, next);
  const TensorType &bias = graph.type(other), &y = graph.type(own.outputs[0]);
  const bool is_bias = bias.elements() == y.cols() && !bias.shape.empty() && bias.cols() == y.cols();
  const bool is_clipped = own.attributes.contains("low") || own.attributes.contains("high");
  if (own.inputs.size() > 2 || is_clipped || !is_bias || y.rows() == 1) return {};
  Node both = own;
  both.inputs.push_back(other);
  return both;
}

/// A bound that is a constant.
std::optional<Node> absorb_bound(const Graph& graph, const Node& own, const Node& next, bool is_low) {
  double bound = 0;
  if (next.inputs.size() > 1) {
    const ValueInfo& other = graph.info(other_input(own, next));
    if (other.kind != Kind::constant || other.type.elements() != 1) return {};
    bound = other.initial.values->front();
  }
  // The lower bound is applied before the upper one, so nothing can follow an upper bound.
  if (own.attributes.contains("high") || (is_low && own.attributes.contains("low")) ||
      !std::isfinite(bound) || (!is_low && bound < low_of(own)))
    return {};
  Node both = own;
  both.attributes[is_low ? "low" : "high"] = bound;
  return both;
}

std::optional<Node> absorb_depthwise(const Graph& graph, const Node& own, const Node& next) {
  if (!(graph.type(next.outputs[0]) == graph.type(own.outputs[0]))) return {};
  const std::string_view name = next.operation->name;
  std::optional<Node> both;
  if (name == "add") both = absorb_bias(graph, own, next);
  if (name == "relu" || name == "maximum") both = absorb_bound(graph, own, next, true);
  if (name == "minimum") both = absorb_bound(graph, own, next, false);
  if (both) both->outputs = next.outputs;
  return both;
}

std::vector<Case> depthwise_cases() {
  const auto use = [](Type type, Shape image, const Convolution& window) {
    uint32_t taps = 1;
    for (uint32_t size : window.kernel) taps *= size;
    const uint32_t channels = image.back();
    return Case{.inputs = {{type, std::move(image), {}, {}}, {type, {channels, taps}, {}, {}}},
                .attributes = attributes_of("depthwise", window)};
  };
  Case whole = use(Type::f32, {2, 12, 9, 40}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  whole.inputs.push_back({Type::f32, {40}, {}, {}});
  whole.attributes.insert({{"low", -0.25}, {"high", 0.5}});
  whole.differentiable = false;
  // A case whose channels are copied in parts.
  const auto large_case = [&] {
    Case large = use(Type::f32, {2, 70, 66, 2}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    large.differentiable = false;
    return large;
  };
  return {std::move(whole),
          use(Type::f32, {2, 5, 6, 7}, {.kernel = {3, 3}, .padding = {1, 1}}),
          use(Type::f32, {2, 7, 9, 4}, {.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 0, 2, 1}}),
          use(Type::f32, {2, 6, 8, 5}, {.kernel = {3, 3}}),
          large_case(),
          use(Type::f32, {3, 11, 20}, {.kernel = {3}, .padding = {2}, .dilation = {2}}),
          use(Type::f16, {2, 4, 9, 3}, {.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 1}})};
}

bool depthwise_keeps_samples(const Divided& divided) { return divided.are_rows_of_first(); }

constexpr Operation kDepthwise[] = {{.name = "depthwise",
                                     .least_inputs = 2,
                                     .most_inputs = 3,
                                     .infer = infer_depthwise,
                                     .layouts = depthwise_layouts,
                                     .lower = lower_depthwise,
                                     .cases = depthwise_cases,
                                     .traits = {.row_weight = 1,
                                                .keeps_samples = depthwise_keeps_samples,
                                                .kind = OperationKind::convolution},
                                     .absorb = absorb_depthwise,
                                     .decompose = decompose_depthwise,
                                     .lowers_on = lowers_on_hosts}};

/// x with each channel repeated `times` times.
Value repeated(Value x, uint32_t times) {
  const TensorType& type = x.type();
  Shape shape = x.shape();
  const Value wide = expand(reshape(x, {type.rows(), type.cols(), 1}), {type.rows(), type.cols(), times});
  shape.back() *= times;
  return reshape(wide, shape);
}

}  // namespace

std::span<const Operation> depthwise_operations() { return kDepthwise; }

Value depthwise(Value x, Value weight, Attributes window) {
  const uint32_t channels = x.type().cols(), outputs = weight.shape().at(0);
  if (outputs != channels) x = repeated(x, outputs / channels);
  return x.owner().apply("depthwise", {x, weight}, std::move(window))[0];
}

}  // namespace tessera::graph
