// Dimensions in another order: one codelet on hosts, gathered rows elsewhere.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <algorithm>
#include <numeric>

#include "graph/dims.h"
#include "lower/lowering.h"
#include "operations/list.h"
#include "ops/map/rearrange.h"

namespace tessera::graph {
namespace {

const std::vector<int64_t>& dims_of(const Node& node) { return node.list("dims"); }

Shape permuted_shape(const Shape& shape, const std::vector<int64_t>& dims) {
  Shape permuted;
  for (int64_t dim : dims) permuted.push_back(shape[dim]);
  return permuted;
}

/// The number of trailing dimensions that form a matrix's columns; none: the columns are not a product of
/// them.
std::optional<uint32_t> dimensions_of_columns(const Shape& shape, uint32_t cols) {
  if (shape.empty()) return 0;
  uint32_t product = 1, count = 0;
  do product *= shape[shape.size() - ++count];
  while (product < cols && count < shape.size());
  return product == cols ? std::optional(count) : std::nullopt;
}

/// The shape in which the input is read or the result returned.
Shape shape_or(const Node& node, const char* attribute, const Shape& otherwise) {
  if (!node.attributes.contains(attribute)) return otherwise;
  const std::vector<int64_t>& sizes = node.list(attribute);
  return {sizes.begin(), sizes.end()};
}
Shape view_of(const Node& node, const TensorType& in) { return shape_or(node, "view", in.shape); }

void require_elements(const Signature& s, const TensorType& other) {
  const bool has_sizes = std::ranges::find(other.shape, 0U) == other.shape.end();
  if (!has_sizes || other.shape.size() > kMaxDimensions || other.elements() != s.inputs[0].elements())
    throw UsageError(fmt::format("permute: {} does not have as many elements as {}", to_string(s.inputs[0]),
                                 to_string(other)));
}

void require_columns(const Shape& shape, const TensorType& matrix) {
  if (!dimensions_of_columns(shape, matrix.cols()))
    throw UsageError(fmt::format("permute: the last dimension of {} does not consist of last ones of [{}]",
                                 to_string(matrix), fmt::join(shape, ", ")));
}

Types infer_permute(const Signature& s) {
  require_dense(s);
  TensorType out = s.inputs[0];
  const std::vector<int64_t>& dims = dims_of(s.attributes);
  out.shape = view_of(s.attributes, out);
  require_elements(s, out);
  require_columns(out.shape, s.inputs[0]);
  std::vector<int64_t> sorted = dims, all(out.shape.size());
  std::ranges::sort(sorted);
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all)
    throw UsageError(fmt::format("permute: [{}] does not name each of the {} dimensions of {} once",
                                 fmt::join(dims, ", "), all.size(), to_string(out)));
  const Shape permuted = permuted_shape(out.shape, dims);
  out.shape = shape_or(s.attributes, "shape", permuted);
  require_elements(s, out);
  require_columns(permuted, out);
  return {out};
}

Gradients permute_gradient(const Differentiation& d) {
  const std::vector<int64_t>& dims = dims_of(d.node);
  std::vector<int> inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) inverse[dims[i]] = static_cast<int>(i);
  const TensorType in = d.input(0).type();
  const Value dy = reshape(*d.dy[0], permuted_shape(view_of(d.node, in), dims));
  return {reshape(permute(dy, inverse), in.shape)};
}

/// Where the elements of the result are in the input.
ArrayIndex index_of(const Shape& shape, const std::vector<int64_t>& dims) {
  const std::vector<uint64_t> steps = steps_of(shape);
  ArrayIndex index{permuted_shape(shape, dims), {}};
  for (int64_t dim : dims) index.steps.push_back(steps[dim]);
  return index;
}

std::vector<Array> permute_reference(const Evaluation& e) {
  const ArrayIndex index = index_of(view_of(e.node, e.input_type(0)), dims_of(e.node));
  Array y(e.inputs[0]->size());
  for (uint64_t i = 0; i < y.size(); ++i) y[i] = (*e.inputs[0])[index(i)];
  return {y};
}

void lower_permute(Lowering& l, const Node& node) {
  const ops::Operand in = l.input(0), out = l.output(0);
  const ArrayIndex index = index_of(view_of(node, l.graph().type(node.inputs[0])), dims_of(node));
  l.add(ops::RearrangeProblem{l.builder().type_of(in), in.rows(), in.cols(), index.sizes, index.steps,
                              *dimensions_of_columns(index.sizes, out.cols())},
        {in, out});
}

/// Absorbs a permutation of the result into one permutation of the input; none: not possible.
std::optional<Node> compose(const Graph& graph, const Node& own, const Node& next) {
  if (own.attributes.contains("shape") || next.attributes.contains("view")) return {};
  std::vector<int64_t> dims;
  for (int64_t dim : dims_of(next)) dims.push_back(dims_of(own)[dim]);
  Node both = own;
  both.outputs = next.outputs;
  both.attributes = next.attributes;
  if (std::ranges::is_sorted(dims)) {
    both.operation = &find_operation("reshape");
    both.attributes = {{"shape", as_integers(graph.type(next.outputs[0]).shape)}};
    return both;
  }
  both.attributes["dims"] = std::move(dims);
  if (own.attributes.contains("view")) both.attributes["view"] = own.list("view");
  return both;
}

/// Absorbs a permutation or a reshape of the result.
std::optional<Node> absorb_permute(const Graph& graph, const Node& own, const Node& next) {
  if (next.operation->name == "permute") return compose(graph, own, next);
  if (next.operation->name != "reshape" || own.attributes.contains("shape")) return {};
  const Shape permuted = permuted_shape(view_of(own, graph.type(own.inputs[0])), dims_of(own));
  const TensorType& result = graph.type(next.outputs[0]);
  if (!dimensions_of_columns(permuted, result.cols())) return {};
  Node both = own;
  both.attributes["shape"] = as_integers(result.shape);
  both.outputs = next.outputs;
  return both;
}

uint32_t product(const Shape& shape, size_t begin, size_t end) {
  return std::accumulate(shape.begin() + static_cast<int64_t>(begin),
                         shape.begin() + static_cast<int64_t>(end), 1U, std::multiplies<>());
}

/// Gathers rows as features of the transposed matrix; the transposes copy nothing.
Value permute_rows(Value x, const std::vector<uint32_t>& from) {
  return transpose(permute_features(transpose(x), from));
}

/// The order in which the elements of an array come when its dimensions are permuted.
std::vector<uint32_t> permute_places_of(const Shape& shape, const std::vector<int64_t>& dims) {
  const ArrayIndex index = index_of(shape, dims);
  std::vector<uint32_t> places(product(shape, 0, shape.size()));
  for (uint32_t i = 0; i < places.size(); ++i) places[i] = static_cast<uint32_t>(index(i));
  return places;
}

/// Trailing dimensions that keep their places are moved along as rows. Without any, a rotation of all
/// dimensions is a transpose, and features are permuted otherwise.
std::vector<Value> decompose_permute(const Decomposition& d) {
  const Value x = reshape(d.inputs[0], view_of(d.node, d.inputs[0].type()));
  const Shape shape = view_of(d.node, d.inputs[0].type());
  const std::vector<int64_t>& dims = dims_of(d.node);
  const size_t count = shape.size();
  const Shape result = shape_or(d.node, "shape", permuted_shape(shape, dims));
  size_t kept = 0, moved = count;
  while (kept < count && dims[kept] == static_cast<int64_t>(kept)) ++kept;
  while (moved > kept && dims[moved - 1] == static_cast<int64_t>(moved) - 1) --moved;
  const uint32_t inner = product(shape, moved, count);
  if (inner > 1 || moved < count) {
    const Shape outer(shape.begin(), shape.begin() + static_cast<int64_t>(moved));
    const std::vector<uint32_t> rows =
        permute_places_of(outer, {dims.begin(), dims.begin() + static_cast<int64_t>(moved)});
    return {reshape(permute_rows(reshape(x, {static_cast<uint32_t>(rows.size()), inner}), rows), result)};
  }
  // A rotation of all dimensions transposes one matrix.
  const auto first = static_cast<size_t>(dims[0]);
  bool rotates = true;
  for (size_t i = 0; i < count; ++i) rotates &= dims[i] == static_cast<int64_t>((first + i) % count);
  if (rotates) {
    const uint32_t cols = product(shape, first, count);
    return {reshape(transpose(reshape(x, {product(shape, 0, first), cols})), result)};
  }
  std::vector<int64_t> rest;
  for (size_t i = kept; i < count; ++i) rest.push_back(dims[i] - static_cast<int64_t>(kept));
  const Shape features(shape.begin() + static_cast<int64_t>(kept), shape.end());
  const std::vector<uint32_t> places = permute_places_of(features, rest);
  const Value matrix = reshape(x, {product(shape, 0, kept), static_cast<uint32_t>(places.size())});
  return {reshape(permute_features(matrix, places), result)};
}

std::vector<Case> permute_cases() {
  const auto use = [](Type type, Shape shape, std::vector<int64_t> dims, std::vector<int64_t> view = {},
                      std::vector<int64_t> result = {}) {
    Case c{.inputs = {{type, std::move(shape), {}, {}}},
           .attributes = {{"dims", std::move(dims)}},
           .below = 100,
           .differentiable = type != Type::u32};
    if (!view.empty()) c.attributes["view"] = std::move(view);
    if (!result.empty()) c.attributes["shape"] = std::move(result);
    return c;
  };
  return {use(Type::f32, {3, 4, 5, 7}, {0, 2, 1, 3}),
          use(Type::f32, {3, 4, 19}, {0, 2, 1}),
          use(Type::f16, {3, 5, 6}, {2, 0, 1}),
          use(Type::bf16, {6, 5, 4}, {2, 1, 0}),
          use(Type::f32, {2, 3, 4, 5, 6}, {4, 2, 0, 3, 1}),
          use(Type::u32, {4, 3, 2}, {1, 0, 2}),
          use(Type::f32, {2, 3, 17, 18}, {0, 1, 3, 2}),
          use(Type::f32, {10, 12}, {0, 2, 1, 3}, {2, 5, 4, 3}, {8, 15}),
          use(Type::f16, {8, 15}, {0, 2, 1, 3}, {2, 4, 5, 3}, {10, 12})};
}

bool permute_keeps_samples(const Divided& divided) {
  const auto& attributes = divided.node.attributes;
  return divided.operands[0] && divided.node.list("dims")[0] == 0 && !attributes.contains("view") &&
         !attributes.contains("shape");
}

std::optional<DimensionOrder> permutes(const Node& node) {
  if (node.attributes.contains("view") || node.attributes.contains("shape")) return {};
  return dims_of(node);
}

constexpr Operation kPermute[] = {{.name = "permute",
                                   .infer = infer_permute,
                                   .gradient = permute_gradient,
                                   .reference = permute_reference,
                                   .layouts = row_layouts,
                                   .lower = lower_permute,
                                   .cases = permute_cases,
                                   .traits = {.keeps_samples = permute_keeps_samples, .permutes = permutes},
                                   .absorb = absorb_permute,
                                   .decompose = decompose_permute,
                                   .lowers_on = lowers_on_hosts}};

}  // namespace

std::span<const Operation> permute_operations() { return kPermute; }

std::optional<Node> absorb_permutation(const Graph& graph, const Node& own, const Node& next) {
  if (next.operation->name != "permute" || next.attributes.contains("view")) return {};
  const TensorType& in = graph.type(own.inputs[0]);
  const Shape& view = graph.type(own.outputs[0]).shape;
  if (!dimensions_of_columns(view, in.cols())) return {};
  Node both = next;
  both.inputs = own.inputs;
  both.attributes["view"] = as_integers(view);
  return both;
}

Value permute(Value x, const std::vector<int>& dims) {
  const TensorType& type = x.type();
  std::vector<int64_t> order;
  for (int dim : dims) order.push_back(static_cast<int64_t>(dimension_of("permute", type, dim)));
  if (order.size() == type.shape.size()) {
    // Dimensions of size 1 may go anywhere.
    std::vector<int64_t> moved;
    for (int64_t dim : order)
      if (type.shape[dim] != 1) moved.push_back(dim);
    if (std::ranges::is_sorted(moved, std::less_equal<>()))
      return reshape(x, permuted_shape(type.shape, order));
    if (order == std::vector<int64_t>{1, 0}) return transpose(x);
  }
  return x.owner().apply("permute", {x}, {{"dims", std::move(order)}})[0];
}

}  // namespace tessera::graph
