// Values in other shapes: transpose, reshape, slice, concatenate.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "graph/dims.h"
#include "lower/lowering.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

// Transpose: the same memory, read the other way.

Types infer_transpose(const Signature& s) {
  require_dense(s);
  const TensorType& in = s.inputs[0];
  if (in.shape.size() != 2) throw UsageError(fmt::format("transpose: {} is not a matrix", to_string(in)));
  return {{in.type, {in.shape[1], in.shape[0]}, {}, {}}};
}

std::vector<Array> transpose_reference(const Evaluation& e) {
  const Shape& shape = e.output_type(0).shape;
  Array y(e.inputs[0]->size());
  for (uint32_t r = 0; r < shape[0]; ++r)
    for (uint32_t c = 0; c < shape[1]; ++c)
      y[uint64_t{r} * shape[1] + c] = (*e.inputs[0])[uint64_t{c} * shape[0] + r];
  return {y};
}

std::vector<LayoutChoice> transpose_layouts(Lowering&, const Node&) {
  return {{{kRows}, {kTransposed}}, {{kTransposed}, {kRows}}};
}

void lower_alias(Lowering& l, const Node&) { l.alias_output(0, l.input(0)); }

// Reshape.

Types infer_reshape(const Signature& s) {
  require_dense(s);
  TensorType out = s.inputs[0];
  out.shape = shape_of(s);
  if (out.elements() != s.inputs[0].elements())
    throw UsageError(fmt::format("reshape: {} does not have as many elements as {}", to_string(s.inputs[0]),
                                 to_string(out)));
  return {out};
}

bool keeps_matrix(const TensorType& a, const TensorType& b) { return a.cols() == b.cols(); }

/// Whether a matrix becomes a vector whose elements are stored along the other dimension: [n, 1] to [n], or
/// back.
bool turns_vector(const TensorType& a, const TensorType& b) {
  return (a.cols() == 1 && b.rows() == 1) || (a.rows() == 1 && b.cols() == 1);
}

std::vector<LayoutChoice> reshape_layouts(Lowering& l, const Node& node) {
  const TensorType &in = l.graph().type(node.inputs[0]), &out = l.graph().type(node.outputs[0]);
  if (keeps_matrix(in, out)) return same_layouts(l, node);
  if (turns_vector(in, out)) return {{{kRows}, {kTransposed}}, {{kTransposed}, {kRows}}};
  return row_layouts(l, node);
}

void lower_reshape(Lowering& l, const Node& node) {
  const ops::Operand in = l.input(0);
  const TensorType &from = l.graph().type(node.inputs[0]), &to = l.graph().type(node.outputs[0]);
  if (keeps_matrix(from, to) || turns_vector(from, to)) return l.alias_output(0, in);
  const ops::Operand out = l.output(0);
  l.run(l.builder().copy(ops::conversion(in, ops::matrix_layout(in.rows(), in.cols(), {}), out,
                                         ops::matrix_layout(out.rows(), out.cols(), {}))));
}

/// Dimensions of more than one element that a reshape splits or merges, grouped by equal products.
struct Regrouped {
  std::vector<size_t> from;
  std::vector<size_t> to;
};

/// The smallest groups.
std::vector<Regrouped> regrouped(const Shape& from, const Shape& to) {
  std::vector<Regrouped> groups;
  for (size_t i = 0, j = 0;;) {
    Regrouped group;
    uint64_t have = 1, want = 1;
    const auto take = [](const Shape& shape, size_t& at, uint64_t& product, std::vector<size_t>& dims) {
      while (at < shape.size() && shape[at] == 1) ++at;
      if (at == shape.size()) return false;
      product *= shape[at];
      dims.push_back(at++);
      return true;
    };
    if (!take(from, i, have, group.from)) return groups;
    take(to, j, want, group.to);
    while (have != want) have < want ? take(from, i, have, group.from) : take(to, j, want, group.to);
    groups.push_back(std::move(group));
  }
}

/// Merged dimensions have to be neighbours in storage; their order there may differ.
std::optional<Reordered> reorder_reshape(const Graph& graph, const Node& node, const DimensionOrder& order) {
  const Shape &from = graph.type(node.inputs[0]).shape, &to = graph.type(node.outputs[0]).shape;
  if (std::ranges::find(from, 0U) != from.end()) return {};
  std::vector<Regrouped> groups = regrouped(from, to);
  const auto place = [&](size_t dim) { return order[dim]; };
  std::ranges::sort(groups, {},
                    [&](const Regrouped& group) { return place(std::ranges::min(group.from, {}, place)); });
  Reordered result{.before = {}, .attributes = {}, .order = DimensionOrder(to.size())};
  std::vector<int64_t> shape;
  DimensionOrder needed;
  std::vector<size_t> ones;
  for (size_t dim = 0; dim < to.size(); ++dim)
    if (to[dim] == 1) ones.push_back(dim);
  const auto add_ones = [&] {
    for (size_t dim : ones) result.order[dim] = static_cast<int64_t>(shape.size()), shape.push_back(1);
  };
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t dim : groups[g].from) needed.push_back(place(dim));
    for (size_t dim : groups[g].to) {
      // Dimensions of one element stand before the last.
      if (g + 1 == groups.size() && dim == groups[g].to.back()) add_ones();
      result.order[dim] = static_cast<int64_t>(shape.size());
      shape.push_back(to[dim]);
    }
  }
  if (groups.empty()) add_ones();
  // The groups have to be contiguous.
  DimensionOrder lying;
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<size_t> dims = groups[g].from;
    std::ranges::sort(dims, {}, place);
    for (size_t dim : dims) lying.push_back(place(dim));
  }
  if (!std::ranges::is_sorted(lying)) return {};
  if (!std::ranges::is_sorted(needed)) {
    if (std::ranges::is_sorted(result.order)) return {};  // no permutation would be left to absorb
    // Other dimensions, of one element, keep their positions.
    result.before.resize(from.size());
    std::iota(result.before.begin(), result.before.end(), 0);
    for (size_t i = 0; i < needed.size(); ++i) result.before[static_cast<size_t>(lying[i])] = needed[i];
  }
  result.attributes["shape"] = std::move(shape);
  return result;
}

/// Absorbs another shape, or a permutation.
std::optional<Node> absorb_view(const Graph& graph, const Node& own, const Node& next) {
  if (next.operation->name != "reshape") return absorb_permutation(graph, own, next);
  Node both = own;
  both.attributes = next.attributes;
  both.outputs = next.outputs;
  return both;
}

std::vector<Case> reshape_cases() {
  return {{{{Type::f32, {4, 6, 5}, {}, {}}}, {{"shape", std::vector<int64_t>{24, 5}}}},
          {{{Type::f32, {4, 6, 5}, {}, {}}}, {{"shape", std::vector<int64_t>{4, 30}}}},
          {{{Type::f32, {9, 1}, {}, {}}}, {{"shape", std::vector<int64_t>{9}}}}};
}

// Slices, concatenation. With a matrix of [outer · rows of the dimension, inner] both are copies of boxes.

/// A dimension seen from the matrix: elements of it are `inner` columns or rows wide.
struct Axis {
  bool is_column = false;
  uint32_t outer = 1;  ///< repetitions, if it is a dimension of rows
  uint32_t size = 0;
  uint32_t inner = 1;
};

Axis axis_of(const TensorType& type, int64_t dimension) {
  Axis axis;
  axis.size = type.shape.at(dimension);
  axis.is_column = dimension + 1 == static_cast<int64_t>(type.shape.size());
  for (int64_t i = 0; i < dimension; ++i) axis.outer *= type.shape[i];
  for (size_t i = dimension + 1; i + 1 < type.shape.size(); ++i) axis.inner *= type.shape[i];
  return axis;
}

/// The boxes of elements [begin, begin + count) of an axis.
std::vector<program::Box> boxes_of(const TensorType& type, const Axis& axis, uint32_t begin, uint32_t count,
                                   bool transposed) {
  std::vector<program::Box> boxes;
  if (axis.is_column) {
    boxes.push_back({0, type.rows(), begin, count});
  } else {
    for (uint32_t i = 0; i < axis.outer; ++i)
      boxes.push_back({(i * axis.size + begin) * axis.inner, count * axis.inner, 0, type.cols()});
  }
  if (transposed)
    for (program::Box& box : boxes) box = {box.col, box.cols, box.row, box.rows};
  return boxes;
}

void check_dimension(const Signature& s, int64_t dimension) {
  for (const TensorType& type : s.inputs)
    if (dimension < 0 || dimension >= static_cast<int64_t>(type.shape.size()))
      throw UsageError(fmt::format("{}: {} has no dimension {}", s.operation, to_string(type), dimension));
}

Types infer_slice(const Signature& s) {
  require_dense(s);
  const int64_t dimension = s.attributes.integer("dimension"), begin = s.attributes.integer("begin"),
                end = s.attributes.integer("end");
  check_dimension(s, dimension);
  TensorType out = s.inputs[0];
  if (begin < 0 || end <= begin || end > out.shape[dimension])
    throw UsageError(
        fmt::format("slice: [{}, {}) is not in dimension {} of {}", begin, end, dimension, to_string(out)));
  out.shape[dimension] = static_cast<uint32_t>(end - begin);
  return {out};
}

/// Zeros around the gradient.
Gradients slice_gradient(const Differentiation& d) {
  const auto dimension = static_cast<uint32_t>(d.node.integer("dimension")),
             begin = static_cast<uint32_t>(d.node.integer("begin")),
             end = static_cast<uint32_t>(d.node.integer("end"));
  return {pad(*d.dy[0], dimension, begin, d.input(0).shape()[dimension] - end)};
}

/// Calls visit(position in the whole, position in the part) for each element of a part of an axis.
template <class Visit>
void each_element(const Shape& whole, const Shape& part, int64_t dimension, uint32_t begin,
                  const Visit& visit) {
  const auto product = [](auto first, auto last) {
    return std::accumulate(first, last, uint64_t{1}, std::multiplies<>());
  };
  const uint64_t outer = product(whole.begin(), whole.begin() + dimension);
  const uint64_t inner = product(whole.begin() + dimension + 1, whole.end());
  for (uint64_t o = 0; o < outer; ++o)
    for (uint64_t i = 0; i < part[dimension]; ++i)
      for (uint64_t j = 0; j < inner; ++j)
        visit((o * whole[dimension] + begin + i) * inner + j, (o * part[dimension] + i) * inner + j);
}

std::vector<Array> slice_reference(const Evaluation& e) {
  Array y(e.output_type(0).elements());
  each_element(e.input_type(0).shape, e.output_type(0).shape, e.node.integer("dimension"),
               static_cast<uint32_t>(e.node.integer("begin")),
               [&](uint64_t whole, uint64_t part) { y[part] = (*e.inputs[0])[whole]; });
  return {y};
}

void lower_slice(Lowering& l, const Node& node) {
  const TensorType &in = l.graph().type(node.inputs[0]), &out = l.graph().type(node.outputs[0]);
  const int64_t dimension = node.integer("dimension");
  const bool transposed = l.input_layout(0).transposed;
  const auto count = out.shape[dimension];
  l.run(l.builder().copy(
      {"slice",
       {copy_boxes(l.input(0),
                   boxes_of(in, axis_of(in, dimension), static_cast<uint32_t>(node.integer("begin")), count,
                            transposed),
                   l.output(0), boxes_of(out, axis_of(out, dimension), 0, count, transposed))}}));
}

std::vector<Case> slice_cases() {
  const auto attributes = [](int64_t dimension, int64_t begin, int64_t end) {
    return Attributes{{"dimension", dimension}, {"begin", begin}, {"end", end}};
  };
  const TensorType in{Type::f32, {4, 5, 9}, {}, {}};
  return {{{in}, attributes(0, 1, 3)}, {{in}, attributes(1, 0, 2)}, {{in}, attributes(2, 3, 9)}};
}

Types infer_concatenate(const Signature& s) {
  require_dense(s);
  const int64_t dimension = s.attributes.integer("dimension");
  check_dimension(s, dimension);
  TensorType out = s.inputs[0];
  out.shape[dimension] = 0;
  for (const TensorType& type : s.inputs) {
    TensorType rest = type;
    if (type.shape.size() == out.shape.size()) rest.shape[dimension] = out.shape[dimension];
    if (!(rest == out))
      throw UsageError(fmt::format("concatenate: {} and {} differ in more than dimension {}",
                                   to_string(s.inputs[0]), to_string(type), dimension));
    if (uint64_t{out.shape[dimension]} + type.shape[dimension] > UINT32_MAX)
      throw UsageError(
          fmt::format("concatenate: the results' dimension {} is more than 2^32 - 1", dimension));
    out.shape[dimension] += type.shape[dimension];
  }
  return {out};
}

Gradients concatenate_gradient(const Differentiation& d) {
  const auto dimension = static_cast<uint32_t>(d.node.integer("dimension"));
  Gradients gradients;
  uint32_t begin = 0;
  for (size_t i = 0; i < d.node.inputs.size(); ++i) {
    const uint32_t end = begin + d.input(i).shape()[dimension];
    gradients.push_back(slice(*d.dy[0], dimension, begin, end));
    begin = end;
  }
  return gradients;
}

std::vector<Array> concatenate_reference(const Evaluation& e) {
  const int64_t dimension = e.node.integer("dimension");
  Array y(e.output_type(0).elements());
  uint32_t begin = 0;
  for (size_t i = 0; i < e.inputs.size(); ++i) {
    const Shape& part = e.input_type(i).shape;
    each_element(e.output_type(0).shape, part, dimension, begin,
                 [&](uint64_t at, uint64_t from) { y[at] = (*e.inputs[i])[from]; });
    begin += part[dimension];
  }
  return {y};
}

void lower_concatenate(Lowering& l, const Node& node) {
  const TensorType& out = l.graph().type(node.outputs[0]);
  const int64_t dimension = node.integer("dimension");
  const bool transposed = l.output_layout(0).transposed;
  program::CopySet set{"concatenate", {}};
  uint32_t begin = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const TensorType& in = l.graph().type(node.inputs[i]);
    const uint32_t count = in.shape[dimension];
    set.groups.push_back(copy_boxes(l.input(i), boxes_of(in, axis_of(in, dimension), 0, count, transposed),
                                    l.output(0),
                                    boxes_of(out, axis_of(out, dimension), begin, count, transposed)));
    begin += count;
  }
  l.run(l.builder().copy(std::move(set)));
}

std::vector<Case> concatenate_cases() {
  const auto type = [](Shape shape) { return TensorType{Type::f32, std::move(shape), {}, {}}; };
  return {{{type({2, 3, 5}), type({4, 3, 5})}, {{"dimension", int64_t{0}}}},
          {{type({2, 3, 5}), type({2, 1, 5}), type({2, 2, 5})}, {{"dimension", int64_t{1}}}},
          {{type({6, 5}), type({6, 8})}, {{"dimension", int64_t{1}}}}};
}

std::optional<Reordered> reorder_along(const Graph&, const Node& node, const DimensionOrder& order) {
  Attributes attributes = node.attributes;
  attributes["dimension"] = order.at(static_cast<size_t>(node.integer("dimension")));
  return Reordered{.attributes = std::move(attributes), .order = order};
}

constexpr size_t kMostConcatenated = 4096;
constexpr char kDimension[] = "dimension";

constexpr Operation kShape[] = {
    {"transpose",
     1,
     1,
     infer_transpose,
     [](const Differentiation& d) { return Gradients{transpose(*d.dy[0])}; },
     transpose_reference,
     transpose_layouts,
     lower_alias,
     [] {
       return std::vector<Case>{{{{Type::f32, {7, 33}, {}, {}}}}, {{{Type::f16, {16, 3}, {}, {}}}}};
     },
     {.aliases = true}},
    {"reshape",
     1,
     1,
     infer_reshape,
     [](const Differentiation& d) { return Gradients{reshape(*d.dy[0], d.input(0).shape())}; },
     [](const Evaluation& e) { return std::vector<Array>{*e.inputs[0]}; },
     reshape_layouts,
     lower_reshape,
     reshape_cases,
     {.keeps_samples = elements_keep_samples, .reorder = reorder_reshape, .aliases = true},
     absorb_view},
    {.name = "stop_gradient",
     .infer =
         [](const Signature& s) {
           require_dense(s);
           return s.inputs;
         },
     .reference = [](const Evaluation& e) { return std::vector<Array>{*e.inputs[0]}; },
     .layouts = same_layouts,
     .lower = lower_alias,
     .cases =
         [] {
           return std::vector<Case>{{.inputs = {{Type::f32, {3, 7, 33}, {}, {}}}, .differentiable = false},
                                    {.inputs = {{Type::f16, {16, 3}, {}, {}}}, .differentiable = false}};
         },
     .traits = {.keeps_samples = elements_keep_samples,
                .reorder = [](const Graph&, const Node&, const DimensionOrder& order)
                    -> std::optional<Reordered> { return Reordered{.attributes = {}, .order = order}; },
                .aliases = true,
                .zero_derivative = true}},
    {"slice",
     1,
     1,
     infer_slice,
     slice_gradient,
     slice_reference,
     same_layouts,
     lower_slice,
     slice_cases,
     {.keeps_samples = keeps_samples_unless_first<kDimension>, .reorder = reorder_along}},
    {"concatenate",
     1,
     kMostConcatenated,
     infer_concatenate,
     concatenate_gradient,
     concatenate_reference,
     same_layouts,
     lower_concatenate,
     concatenate_cases,
     {.keeps_samples = keeps_samples_unless_first<kDimension>, .reorder = reorder_along}},
};

}  // namespace

std::span<const Operation> shape_operations() { return kShape; }

Value transpose(Value x) { return x.owner().apply("transpose", {x})[0]; }

Value stop_gradient(Value x) { return x.owner().apply("stop_gradient", {x})[0]; }

Value reshape(Value x, Shape shape) {
  if (x.shape() == shape) return x;
  return x.owner().apply("reshape", {x}, {{"shape", as_integers(shape)}})[0];
}

Value slice(Value x, uint32_t dim, uint32_t begin, uint32_t end) {
  return x.owner().apply("slice", {x},
                         {{"dimension", int64_t{dim}}, {"begin", int64_t{begin}}, {"end", int64_t{end}}})[0];
}

std::vector<Value> split(Value x, const std::vector<uint32_t>& sizes, uint32_t dim) {
  std::vector<Value> parts;
  uint32_t end = 0;
  for (uint32_t size : sizes) {
    parts.push_back(slice(x, dim, end, end + size));
    end += size;
  }
  if (end != x.shape()[dim])
    throw UsageError(fmt::format("split: the parts have {} elements; dimension {} of {} has {}", end, dim,
                                 to_string(x.type()), x.shape()[dim]));
  return parts;
}

Value pad(Value x, uint32_t dim, uint32_t before, uint32_t after, double value) {
  std::vector<Value> parts;
  const auto add = [&](uint32_t count) {
    if (count == 0) return;
    TensorType type = x.type();
    if (dim < type.shape.size()) type.shape[dim] = count;
    parts.push_back(x.owner().constant(
        "", type.shape, std::vector<float>(type.elements(), static_cast<float>(value)), type.type));
  };
  add(before);
  parts.push_back(x);
  add(after);
  return parts.size() == 1 ? x : concatenate(parts, dim);
}

Value concatenate(const std::vector<Value>& values, uint32_t dim) {
  if (values.empty()) throw UsageError("concatenate: there are no values");
  return values[0].owner().apply("concatenate", values, {{"dimension", int64_t{dim}}})[0];
}

}  // namespace tessera::graph
