// Convolutions: products of a weight with what a window sees.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/convolution.h>
#include <tessera/error.h>

#include <algorithm>
#include <numeric>

#include "graph/broadcast.h"
#include "lower/lowering.h"
#include "machine/model/machine.h"
#include "operations/linear.h"
#include "operations/list.h"
#include "operations/window.h"
#include "sparse/convolution_groups.h"
#include "sparse/pattern.h"

namespace tessera::graph {
namespace {

using kernels::Window;

const Operation& product() {
  static const Operation& linear = find_operation("linear");
  return linear;
}
const Operation& product_for_input() {
  static const Operation& gradient = find_operation("linear_input_gradient");
  return gradient;
}

/// The signature of a product: what the window sees, and the other inputs.
Types infer_of_seen(const Operation& of, const Signature& s) {
  require_float(s, s.inputs[0]);
  if (s.inputs[0].pattern) throw UsageError(fmt::format("{}: the image is sparse", s.operation));
  Types inputs = s.inputs;
  const Window window = window_over(s.operation, s.attributes, s.inputs[0].shape);
  inputs[0].shape = positions_of(s.inputs[0].shape, window, window.taps() * s.inputs[0].cols());
  return of.infer({s.operation, inputs, s.attributes, s.graph});
}

/// The groups of a whole weight whose pattern may change.
std::optional<ConvolutionGroups> groups_of_weight(const Node& node) {
  if (!node.attributes.contains("groups")) return {};
  const std::vector<int64_t>& kernel = node.list("kernel");
  const int64_t taps = std::accumulate(kernel.begin(), kernel.end(), int64_t{1}, std::multiplies<>());
  const auto size = [](int64_t of) { return static_cast<uint32_t>(std::clamp<int64_t>(of, 0, UINT32_MAX)); };
  return ConvolutionGroups{size(node.integer("groups")), size(taps)};
}

void require_blocks_in_groups(const Signature& s) {
  const TensorType& w = s.inputs[1];
  const std::optional<ConvolutionGroups> of = groups_of_weight(s.attributes);
  if (of && !(w.pattern && sparse::is_in_groups(*w.pattern, *of)))
    throw UsageError(fmt::format("{}: the weight {} must have blocks of each of {} groups alone", s.operation,
                                 to_string(w), of->groups));
}

Types infer_convolution(const Signature& s) {
  Types result = infer_of_seen(product(), s);
  require_blocks_in_groups(s);
  return result;
}

/// Inputs X, dY and W, whose values are not read.
Types infer_convolution_gradient(const Signature& s) {
  return infer_of_seen(find_operation("linear_weight_gradient"), s);
}

/// Inputs dY and W; and optionally a value of the image's shape: the result is 0 where that is not positive.
Types infer_convolution_input_gradient(const Signature& s) {
  const Types product(s.inputs.begin(), s.inputs.begin() + 2);
  const Types seen = product_for_input().infer({s.operation, product, s.attributes, s.graph});
  Types image = find_operation("fold").infer({s.operation, seen, s.attributes, s.graph});
  require_blocks_in_groups(s);
  if (s.inputs.size() > 2) require_type(s, s.inputs[2], "the mask", image[0]);
  return image;
}

Attributes product_attributes(const Node& node) {
  Attributes attributes;
  for (const char* name : {"activation", "residual"})
    if (const auto found = node.attributes.find(name); found != node.attributes.end())
      attributes.insert(*found);
  return attributes;
}

Value seen_by(const Node& node, Value x) {
  return x.graph->apply("patches", {x}, window_attributes(node))[0];
}

std::vector<Value> decompose_convolution(const Decomposition& d) {
  std::vector<Value> inputs = d.inputs;
  inputs[0] = seen_by(d.node, inputs[0]);
  return inputs[0].graph->apply("linear", inputs, product_attributes(d.node));
}

Attributes image_attributes(const Node& node) {
  Attributes attributes = window_attributes(node);
  attributes["size"] = node.list("size");
  return attributes;
}

std::vector<Value> decompose_convolution_input_gradient(const Decomposition& d) {
  Graph& graph = *d.inputs[0].graph;
  const Value seen = graph.apply("linear_input_gradient", {d.inputs[0], d.inputs[1]})[0];
  const Value image = graph.apply("fold", {seen}, image_attributes(d.node))[0];
  return d.inputs.size() > 2 ? graph.apply("relu_gradient", {image, d.inputs[2]}) : std::vector<Value>{image};
}

std::vector<Value> decompose_convolution_gradient(const Decomposition& d) {
  std::vector<Value> inputs = d.inputs;
  inputs[0] = seen_by(d.node, inputs[0]);
  return inputs[0].graph->apply("linear_weight_gradient", inputs);
}

Gradients convolution_gradient(const Differentiation& d) {
  const Value dy = *d.dy[0], x = d.input(0), w = d.input(1);
  if (d.node.text("activation", "none") != "none")
    throw UsageError(
        "convolution: an activation that is part of it has no gradient; apply it as an operation of its own");
  Gradients gradients(d.node.inputs.size());
  if (d.needed[0]) {
    Attributes attributes = window_attributes(d.node);
    attributes["size"] = std::vector<int64_t>(x.shape().begin() + 1, x.shape().end() - 1);
    gradients[0] = d.graph.apply("convolution_input_gradient", {dy, w}, std::move(attributes))[0];
  }
  if (d.needed[1])
    gradients[1] = d.graph.apply("convolution_weight_gradient", {x, dy, w}, window_attributes(d.node))[0];
  const bool has_residual = d.node.integer("residual", 0) != 0;
  const size_t bias_end = d.node.inputs.size() - (has_residual ? 1 : 0);
  if (bias_end > 2) gradients[2] = sum_to(dy, d.input(2).type());
  if (has_residual) gradients.back() = dy;
  return gradients;
}

/// The gradient of z, to which y · W is added under the window; where a mask set z to 0, dz is ignored.
Gradients convolution_input_gradient_gradient(const Differentiation& d) {
  const Value y = d.input(0), w = d.input(1);
  Value dz = *d.dy[0];
  if (d.node.inputs.size() > 2) dz = d.graph.apply("relu_gradient", {dz, d.input(2)})[0];
  const Attributes window = window_attributes(d.node);
  return {d.graph.apply("convolution", {dz, w}, window)[0],
          d.graph.apply("convolution_weight_gradient", {dz, y, w}, window)[0]};
}

/// The layouts of the product; images have the layout of X.
std::vector<LayoutChoice> convolution_layouts(Lowering& l, const Node& node) {
  const ValueLayout x = l.weight(node.inputs[1]).activations();
  LayoutChoice choice{{x, l.weight_layout(node.inputs[1])}, {x}};
  const bool has_residual = node.integer("residual", 0) != 0;
  if (node.inputs.size() > (has_residual ? 3U : 2U)) choice.inputs.push_back(kRows);
  if (has_residual) choice.inputs.push_back(x);
  return {choice};
}

void lower_convolution(Lowering& l, const Node& node) {
  const Shape& image = l.graph().type(node.inputs[0]).shape;
  lower_product(l, node, window_over(node.operation->name, node, image));
}

std::vector<LayoutChoice> convolution_input_gradient_layouts(Lowering& l, const Node& node) {
  const ValueLayout x = l.weight(node.inputs[1]).activations();
  LayoutChoice choice{{x, l.weight_layout(node.inputs[1])}, {x}};
  if (node.inputs.size() > 2) choice.inputs.push_back(x);
  return {choice};
}

void lower_convolution_input_gradient(Lowering& l, const Node& node) {
  const Shape& image = l.graph().type(node.outputs[0]).shape;
  lower_product_input_gradient(l, node, window_over(node.operation->name, node, image));
}

std::vector<LayoutChoice> convolution_gradient_layouts(Lowering& l, const Node& node) {
  const ValueLayout x = l.weight(node.inputs[2]).activations(), weight = l.weight_layout(node.inputs[2]);
  return {{{x, x, weight}, {weight}}};
}

void lower_convolution_gradient(Lowering& l, const Node& node) {
  const Shape& image = l.graph().type(node.inputs[0]).shape;
  lower_product_gradient(l, node, window_over(node.operation->name, node, image));
}

/// Products in FP32 read their panels from images, or add panels to them; 16-bit products read or write the
/// elements under the window.
bool gradient_takes_images(const machine::Machine& machine, const Graph& graph, const Node& node) {
  return lowers_on_hosts(machine, graph, node) && graph.type(*weight_input(node)).type == Type::f32;
}

bool convolution_keeps_samples(const Divided& divided) { return product().traits.keeps_samples(divided); }

bool convolution_input_gradient_keeps_samples(const Divided& divided) {
  return product_for_input().traits.keeps_samples(divided);
}

std::optional<Node> absorb_convolution(const Graph& graph, const Node& own, const Node& next) {
  return product().absorb(graph, own, next);
}
std::optional<Node> absorb_convolution_input_gradient(const Graph& graph, const Node& own, const Node& next) {
  return product_for_input().absorb(graph, own, next);
}

/// Every third block.
TensorType convolution_sparse(uint32_t outputs, uint32_t seen, uint32_t block_size, bool is_dynamic,
                              Type of = Type::f32) {
  Pattern pattern{outputs, seen, block_size, {0}, {}};
  for (uint32_t row = 0; row < pattern.block_rows(); ++row) {
    for (uint32_t col = row % 3; col < pattern.block_cols(); col += 3) pattern.col_indices.push_back(col);
    pattern.crow_indices.push_back(pattern.col_indices.size());
  }
  const uint64_t blocks = pattern.blocks();
  TensorType type{of, {outputs, seen}, std::make_shared<const Pattern>(std::move(pattern)), {}};
  if (is_dynamic) type.capacity = blocks + 3;
  return type;
}

std::vector<Case> convolution_cases() {
  const Convolution same{.kernel = {3, 3}, .padding = {1, 1}}, strided{.kernel = {2, 3}, .stride = {2, 1}};
  const Convolution line{.kernel = {3}, .padding = {2, 0}, .dilation = {2}};
  const auto use = [](const Convolution& window, Types inputs, Attributes more = {}) {
    Case c{.inputs = std::move(inputs), .attributes = attributes_of("convolution", window)};
    c.differentiable = !more.contains("activation");
    c.attributes.insert(more.begin(), more.end());
    return c;
  };
  const TensorType bias = dense_type(Type::f32, {16});
  return {use(same, {dense_type(Type::f32, {2, 5, 6, 3}), dense_type(Type::f32, {10, 27}),
                     dense_type(Type::f32, {10})}),
          use(strided, {dense_type(Type::f32, {2, 6, 5, 8}), dense_type(Type::f32, {16, 48}), bias},
              {{"activation", "relu"}}),
          use(line, {dense_type(Type::f32, {3, 9, 4}), dense_type(Type::f32, {6, 12})}),
          use(same, {dense_type(Type::f16, {2, 4, 5, 4}), dense_type(Type::f16, {8, 36})}),
          use(same, {dense_type(Type::f32, {2, 5, 5, 8}), convolution_sparse(16, 72, 8, false), bias}),
          use(strided, {dense_type(Type::f32, {1, 8, 7, 16}), convolution_sparse(32, 96, 16, true)}),
          use(line,
              {dense_type(Type::f32, {2, 9, 8}), convolution_sparse(16, 24, 1, false), bias,
               dense_type(Type::f32, {2, 7, 16})},
              {{"residual", int64_t{1}}}),
          use(same, {dense_type(Type::f32, {2, 7, 6, 4}), convolution_sparse(16, 36, 4, false), bias},
              {{"activation", "gelu"}}),
          use(same, {dense_type(Type::bf16, {2, 5, 6, 6}), dense_type(Type::bf16, {10, 54}),
                     dense_type(Type::bf16, {10})}),
          use(same,
              {dense_type(Type::bf16, {2, 5, 4, 3}), dense_type(Type::bf16, {16, 27}),
               dense_type(Type::bf16, {16}), dense_type(Type::bf16, {2, 5, 4, 16})},
              {{"residual", int64_t{1}}, {"activation", "relu"}}),
          use(strided, {dense_type(Type::bf16, {1, 8, 7, 16}),
                        convolution_sparse(32, 96, 16, false, Type::bf16), dense_type(Type::bf16, {32})})};
}

/// The case of a gradient with respect to an image.
Case input_gradient_case(Attributes window, const TensorType& image, const TensorType& weight) {
  const Window over = window_over("convolution", {.attributes = window}, image.shape);
  const TensorType dy = dense_type(image.type, positions_of(image.shape, over, weight.shape[0]));
  window["size"] = std::vector<int64_t>(image.shape.begin() + 1, image.shape.end() - 1);
  return {.inputs = {dy, weight}, .attributes = std::move(window)};
}

std::vector<Case> convolution_input_gradient_cases() {
  std::vector<Case> cases;
  for (const Case& forward : convolution_cases())
    if (forward.differentiable && !forward.attributes.contains("residual"))
      cases.push_back(input_gradient_case(forward.attributes, forward.inputs[0], forward.inputs[1]));
  // With masks. The larger images are accumulated in parts, for several panels.
  const auto add_masked = [&](const Convolution& window, Shape image, const TensorType& weight) {
    const TensorType x = dense_type(Type::f32, std::move(image));
    Case c = input_gradient_case(attributes_of("convolution", window), x, weight);
    c.inputs.push_back(x);
    c.differentiable = false;
    c.hosts_only = x.elements() > 10000;
    cases.push_back(std::move(c));
  };
  const Convolution same{.kernel = {3, 3}, .padding = {1, 1}};
  const Convolution strided{.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 0}, .dilation = {2, 1}};
  add_masked(strided, {2, 9, 8, 5}, dense_type(Type::f32, {12, 30}));
  add_masked(same, {2, 5, 6, 8}, convolution_sparse(16, 72, 8, false));
  add_masked(same, {2, 21, 20, 40}, dense_type(Type::f32, {36, 360}));
  return cases;
}

std::vector<Case> convolution_gradient_cases() {
  std::vector<Case> cases;
  for (Case& forward : convolution_cases()) {
    if (!forward.differentiable || forward.attributes.contains("residual")) continue;
    const TensorType image = forward.inputs[0], weight = forward.inputs[1];
    const Window window = window_over("convolution", {.attributes = forward.attributes}, image.shape);
    const TensorType dy = dense_type(image.type, positions_of(image.shape, window, weight.shape[0]));
    cases.push_back({.inputs = {image, dy, weight},
                     .attributes = std::move(forward.attributes),
                     .differentiable = false});
  }
  // A case whose rows are copied in parts, for several panels.
  const Convolution same{.kernel = {3, 3}, .padding = {1, 1}};
  cases.push_back({.inputs = {dense_type(Type::f32, {3, 12, 11, 60}), dense_type(Type::f32, {3, 12, 11, 140}),
                              dense_type(Type::f32, {140, 540})},
                   .attributes = attributes_of("convolution", same),
                   .differentiable = false});
  return cases;
}

constexpr Operation kConvolution[] = {
    {.name = "convolution",
     .least_inputs = 2,
     .most_inputs = 4,
     .infer = infer_convolution,
     .gradient = convolution_gradient,
     .layouts = convolution_layouts,
     .lower = lower_convolution,
     .cases = convolution_cases,
     .traits = {.weight = {{1, ProductKind::forward}},
                .weight_groups = groups_of_weight,
                .keeps_samples = convolution_keeps_samples,
                .kind = OperationKind::convolution},
     .absorb = absorb_convolution,
     .decompose = decompose_convolution,
     .lowers_on = lowers_on_hosts},  // whose products take their panels from images
    {.name = "convolution_input_gradient",
     .least_inputs = 2,
     .most_inputs = 3,
     .infer = infer_convolution_input_gradient,
     .gradient = convolution_input_gradient_gradient,
     .layouts = convolution_input_gradient_layouts,
     .lower = lower_convolution_input_gradient,
     .cases = convolution_input_gradient_cases,
     .traits = {.weight = {{1, ProductKind::input_gradient}},
                .weight_groups = groups_of_weight,
                .keeps_samples = convolution_input_gradient_keeps_samples,
                .kind = OperationKind::convolution},
     .absorb = absorb_convolution_input_gradient,
     .decompose = decompose_convolution_input_gradient,
     .lowers_on = gradient_takes_images},
    {.name = "convolution_weight_gradient",
     .least_inputs = 3,
     .most_inputs = 3,
     .infer = infer_convolution_gradient,
     .layouts = convolution_gradient_layouts,
     .lower = lower_convolution_gradient,
     .cases = convolution_gradient_cases,
     .traits = {.weight = {{2, ProductKind::sddmm}}, .kind = OperationKind::convolution},
     .decompose = decompose_convolution_gradient,
     .lowers_on = gradient_takes_images}};

/// Divides features or rows of the weight into groups.
std::vector<Value> in_groups(Value x, uint32_t groups, uint32_t dimension) {
  return split(x, std::vector<uint32_t>(groups, x.shape()[dimension] / groups), dimension);
}

[[noreturn]] void refuse_groups(std::string_view operation, uint32_t groups, Value x, Value weight) {
  throw UsageError(
      fmt::format("{}: {} groups of {} with the weight {}: outputs and channels must be multiples, "
                  "and the weight a matrix",
                  operation, groups, to_string(x.type()), to_string(weight.type())));
}

void require_groups(std::string_view operation, uint32_t groups, Value x, Value weight) {
  const TensorType &image = x.type(), &w = weight.type();
  const bool divides =
      groups > 0 && w.shape.size() == 2 && image.cols() % groups == 0 && w.shape[0] % groups == 0;
  if (!divides) refuse_groups(operation, groups, x, weight);
}

uint32_t last_dimension(Value x) { return static_cast<uint32_t>(x.shape().size()) - 1; }

/// The convolutions of the groups, one after the other.
Value grouped(Value x, Value weight, const Convolution& of) {
  Convolution own = of;
  own.groups = 1;
  const std::vector<Value> parts = in_groups(x, of.groups, last_dimension(x));
  const std::vector<Value> weights = in_groups(weight, of.groups, 0);
  std::vector<Value> results;
  for (uint32_t g = 0; g < of.groups; ++g) results.push_back(convolution(parts[g], weights[g], {}, own));
  return concatenate(results, last_dimension(results[0]));
}

/// A sparse weight without elements outside its groups is computed as a single group.
void require_whole_weight(std::string_view operation, Value x, Value weight, uint64_t cols,
                          const ConvolutionGroups& of) {
  const TensorType& w = weight.type();
  if (w.cols() != cols || !sparse::is_in_groups(*w.pattern, of))
    throw UsageError(
        fmt::format("{}: {} groups of {} with the sparse weight {}: it must have {} columns, and blocks of "
                    "each output's own group alone",
                    operation, of.groups, to_string(x.type()), to_string(w), cols));
}

/// Whether a convolution is a product of each position with a weight of any pattern.
bool is_one_by_one(const Attributes& window) {
  const auto all = [&](const char* name, int64_t value) {
    const auto& sizes = std::get<std::vector<int64_t>>(window.at(name));
    return !sizes.empty() && std::ranges::count(sizes, value) == static_cast<int64_t>(sizes.size());
  };
  return all("kernel", 1) && all("stride", 1) && all("padding", 0) && !window.contains("groups");
}

/// A convolution with a single group.
Value of_one_group(Value x, Value weight, std::optional<Value> bias, Attributes window) {
  const size_t dimensions = std::get<std::vector<int64_t>>(window.at("kernel")).size();
  if (x.shape().size() == dimensions + 2 && is_one_by_one(window)) return linear(x, weight, bias);
  std::vector<Value> inputs = {x, weight};
  if (bias) inputs.push_back(*bias);
  return x.owner().apply("convolution", inputs, std::move(window))[0];
}

/// The transposed convolution, which is the gradient of a convolution's images with this weight; `image` has
/// their sizes beside the window.
Value transposed_of_one_group(Value x, Value weight, const Attributes& image) {
  if (is_one_by_one(image)) return x.owner().apply("linear_input_gradient", {x, weight})[0];
  return x.owner().apply("convolution_input_gradient", {x, weight}, image)[0];
}

/// The same for each group, one after the other.
Value transposed_in_groups(Value x, Value weight, uint32_t groups, const Attributes& image) {
  const std::vector<Value> parts = in_groups(x, groups, last_dimension(x));
  const std::vector<Value> weights = in_groups(weight, groups, 0);
  std::vector<Value> results;
  for (uint32_t g = 0; g < groups; ++g)
    results.push_back(transposed_of_one_group(parts[g], weights[g], image));
  return concatenate(results, last_dimension(results[0]));
}

void require_values(const char* what, std::span<const float> values, const Shape& shape) {
  uint64_t count = 1;
  for (uint32_t size : shape) count *= size;
  if (shape.size() < 3 || shape.size() > 4 || values.size() != count)
    throw UsageError(
        fmt::format("{}: {} values are not [{}] of outputs, channels and one or two sizes of a kernel", what,
                    values.size(), fmt::join(shape, ", ")));
}

/// The contributions of each position to all taps of the outputs of its own channel.
Value spread_by_channel(Value x, Value weight, uint32_t taps) {
  const TensorType& type = x.type();
  const uint32_t rows = type.rows(), channels = type.cols(), outputs = weight.type().cols() / taps;
  const Value by_tap = permute(reshape(weight, {channels, taps, outputs}), {1, 0, 2});
  Shape shape = x.shape();
  shape.back() = taps * channels * outputs;
  return reshape(reshape(x, {rows, 1, channels, 1}) * by_tap, shape);
}

/// The sizes of the image from which a window makes x. Throws UsageError if there are none.
Shape transposed_sizes(Value x, const Node& window, const std::vector<uint32_t>& output_padding) {
  constexpr const char* kName = "transposed_convolution";
  const size_t dimensions = window.list("kernel").size();
  if (x.shape().size() != dimensions + 2 || (!output_padding.empty() && output_padding.size() != dimensions))
    throw UsageError(fmt::format("{}: {}, a kernel [{}] and an output padding [{}] have other dimensions",
                                 kName, to_string(x.type()), fmt::join(window.list("kernel"), ", "),
                                 fmt::join(output_padding, ", ")));
  Shape sizes;
  for (size_t d = 0; d < dimensions; ++d) {
    const auto at = [&](const char* name, size_t i) { return window.list(name)[i]; };
    const int64_t size = (int64_t{x.shape()[d + 1]} - 1) * at("stride", d) - at("padding", d) -
                         at("padding", dimensions + d) + at("dilation", d) * (at("kernel", d) - 1) + 1 +
                         (output_padding.empty() ? 0 : output_padding[d]);
    if (!output_padding.empty() && output_padding[d] >= at("stride", d))
      throw UsageError(fmt::format("{}: an output padding of {} with a stride of {}: it must be less", kName,
                                   output_padding[d], at("stride", d)));
    if (size < 1 || size > UINT32_MAX)
      throw UsageError(fmt::format("{}: a dimension of the result would be {}", kName, size));
    sizes.push_back(static_cast<uint32_t>(size));
  }
  return sizes;
}

/// [a, b, c] as [a, c, b].
std::vector<float> with_last_two_swapped(std::span<const float> values, uint64_t b, uint64_t c) {
  std::vector<float> swapped(values.size());
  for (uint64_t i = 0; i < values.size(); ++i)
    swapped[i / (b * c) * b * c + i % c * b + i / c % b] = values[i];
  return swapped;
}

uint32_t taps_of(const Shape& shape) {
  return std::accumulate(shape.begin() + 2, shape.end(), 1U, std::multiplies<>());
}

}  // namespace

std::span<const Operation> convolution_operations() { return kConvolution; }

Value convolution(Value x, Value weight, std::optional<Value> bias, const Convolution& of) {
  require_groups("convolution", of.groups, x, weight);
  Attributes attributes = attributes_of("convolution", of);
  if (of.groups == 1) return of_one_group(x, weight, bias, std::move(attributes));
  // Checks the inputs before dividing them.
  const Window window = window_over("convolution", {.attributes = attributes}, x.shape());
  const uint64_t cols = uint64_t{window.taps()} * x.type().cols();
  if (weight.type().pattern) {
    require_whole_weight("convolution", x, weight, cols, {of.groups, window.taps()});
    if (weight.type().capacity) attributes["groups"] = int64_t{of.groups};
    return of_one_group(x, weight, bias, std::move(attributes));
  }
  if (weight.shape()[1] * uint64_t{of.groups} != cols) refuse_groups("convolution", of.groups, x, weight);
  const Value y = of.groups == x.type().cols() ? depthwise(x, weight, attributes) : grouped(x, weight, of);
  return bias ? y + *bias : y;
}

Value transposed_convolution(Value x, Value weight, std::optional<Value> bias, const Convolution& of,
                             const std::vector<uint32_t>& output_padding) {
  constexpr const char* kName = "transposed_convolution";
  require_groups(kName, of.groups, x, weight);
  const Node window{.attributes = attributes_of(kName, of)};
  const Shape sizes = transposed_sizes(x, window, output_padding);
  Shape image = {x.shape()[0]};
  image.insert(image.end(), sizes.begin(), sizes.end());
  image.push_back(1);
  const uint32_t taps = window_over(kName, window, image).taps(), channels = x.type().cols();
  const TensorType& w = weight.type();
  if (w.shape[0] != channels || w.cols() % taps != 0)
    throw UsageError(
        fmt::format("{}: {} with the weight {}: it must have a row for each channel, and columns for {} taps",
                    kName, to_string(x.type()), to_string(w), taps));
  if (of.groups > 1 && w.pattern) require_whole_weight(kName, x, weight, w.cols(), {of.groups, taps});
  Attributes attributes = window.attributes;
  attributes["size"] = as_integers(sizes);
  if (of.groups > 1 && w.capacity) attributes["groups"] = int64_t{of.groups};
  Value y;
  if (of.groups == 1 || w.pattern)
    y = transposed_of_one_group(x, weight, attributes);
  else if (of.groups == channels)
    y = x.owner().apply("fold", {spread_by_channel(x, weight, taps)}, std::move(attributes))[0];
  else
    y = transposed_in_groups(x, weight, of.groups, attributes);
  return bias ? y + *bias : y;
}

std::vector<float> convolution_weight(std::span<const float> values, const Shape& shape) {
  require_values("convolution_weight", values, shape);
  return with_last_two_swapped(values, shape[1], taps_of(shape));
}

SparseMatrix ungrouped_convolution_weight(std::span<const float> values, uint32_t outputs, uint32_t channels,
                                          uint32_t taps, uint32_t groups, uint32_t block_size) {
  const bool divides = groups > 0 && outputs % groups == 0 && channels % groups == 0;
  if (!divides || values.size() != uint64_t{outputs} * taps * (channels / groups) || block_size == 0)
    throw UsageError(
        fmt::format("ungrouped_convolution_weight: {} values are not a weight of {} outputs and {} "
                    "channels in {} groups with {} taps",
                    values.size(), outputs, channels, groups, taps));
  const uint32_t cols = taps * (channels / groups);
  SparseMatrix matrix = ungrouped_convolution_weight(
      sparse::from_dense(row_major(values.data(), cols), outputs, cols), {groups, taps});
  return block_size == 1 ? matrix : sparse::cover(matrix, block_size);
}

SparseMatrix ungrouped_convolution_weight(SparseMatrix weight, const ConvolutionGroups& of) {
  sparse::validate(weight);
  weight.pattern = sparse::ungrouped(weight.pattern, of);
  return weight;
}

}  // namespace tessera::graph
