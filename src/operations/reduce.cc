// Sums and maxima over dimensions, and their inverse: a value expanded to a larger shape.
#include "ops/map/reduce.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/integer_types.h"
#include "base/names.h"
#include "lower/lowering.h"
#include "operations/broadcast_operands.h"
#include "operations/constants.h"
#include "operations/list.h"
#include "ops/map/reduce_all.h"

namespace tessera::graph {
namespace {

using kernels::Reduction;

enum class Over : uint8_t { rows, columns, all };

Over over_of(const Node& node) {
  constexpr base::Names<Over, 3> kOver = {"dimension of a reduction", {"rows", "columns", "all"}};
  return kOver.named(node.text("over", "all"));
}

/// Sums may be scaled, so that a mean is one operation.
template <Reduction op>
double scale_of(const Node& node) {
  return op == Reduction::maximum ? 1 : node.number("scale", 1.0);
}

/// Whether the gradient of a maximum goes to the first of equal elements; otherwise all share it equally.
bool goes_to_first(const Node& node) {
  constexpr std::array<std::string_view, 2> kTies = {"all", "first"};
  const bool is_first = base::position_of(kTies, node.text("ties", "all"), "ties of max") == 1;
  if (is_first && over_of(node) != Over::columns)
    throw UsageError("max: ties of 'first' are possible only over the last dimension");
  return is_first;
}

Shape reduced_shape(const Shape& shape, Over over) {
  if (over == Over::all) return {};
  if (over == Over::rows) return {shape.empty() ? 1 : shape.back()};
  Shape reduced = shape;
  if (reduced.empty()) return {};
  reduced.back() = 1;
  return reduced;
}

template <Reduction op>
Types infer_reduce(const Signature& s) {
  const TensorType& type = s.inputs[0];
  require_number(s, type);
  const Over over = over_of(s.attributes);
  if (op == Reduction::maximum) goes_to_first(s.attributes);
  if (is_integer(type.type) && scale_of<op>(s.attributes) != 1)
    throw UsageError(fmt::format("{}: {} cannot be scaled: cast it", s.operation, to_string(type)));
  if (type.pattern && (over != Over::all || op == Reduction::maximum))
    throw UsageError(fmt::format("{}: of a sparse value only sums over all are possible", s.operation));
  // Sums of squares of 16-bit values would overflow their type.
  const bool widens = op == Reduction::sum_of_squares && !is_integer(type.type);
  const Type result = widens ? Type::f32 : type.type;
  return {{result, reduced_shape(type.shape, over), {}, {}}};
}

template <Reduction op>
std::vector<Array> reduce_reference(const Evaluation& e) {
  const Over over = over_of(e.node);
  const uint32_t cols = e.input_type(0).cols();
  Array y(e.output_type(0).elements(),
          op == Reduction::maximum ? -std::numeric_limits<double>::infinity() : 0.0);
  for (uint64_t i = 0; i < e.inputs[0]->size(); ++i) {
    const double x = (*e.inputs[0])[i];
    double& result = y[over == Over::all ? 0 : over == Over::rows ? i % cols : i / cols];
    if (op == Reduction::maximum)
      result = std::isnan(result) || result > x ? result : x;
    else
      result += op == Reduction::sum ? x : x * x;
  }
  for (double& result : y) result *= scale_of<op>(e.node);
  return {y};
}

/// 1 for the first of the largest elements of each row, or for its first NaN, and 0 for all others. They are
/// found in the type of x, if it counts to the length of a row without gaps, as wider ones take more memory.
Value first_of_largest(Value x, Value largest) {
  const Type own = x.type().type;
  const uint32_t cols = x.type().cols();
  const Type counting = cols * epsilon_of(own) <= 2 ? own : Type::f32;
  const Value is_largest = maximum(equal(x, largest), not_equal(x, x));
  std::vector<float> to_end(cols);
  for (uint32_t i = 0; i < cols; ++i) to_end[i] = static_cast<float>(cols - i);
  const Value to_end_of_row = x.owner().constant("", {cols}, std::move(to_end), counting);
  const Value distance = cast(is_largest, counting) * to_end_of_row;
  return cast(equal(distance, max(distance, {-1}, true)), own);
}

template <Reduction op>
Gradients reduce_gradient(const Differentiation& d) {
  const Value x = d.input(0);
  Value dy = *d.dy[0];
  const double scale = scale_of<op>(d.node);
  if (scale != 1) dy = dy * scale;
  if (x.type().pattern) throw UsageError("a reduction of a sparse value has no gradient");
  const bool is_row = over_of(d.node) == Over::rows;
  const auto expanded = [&](Value value) { return expand(value, x.shape()); };
  if (op == Reduction::sum) return {is_row ? dy : expanded(dy)};
  if (op == Reduction::sum_of_squares) {
    const Value factor = cast(dy * 2, x.type().type);
    return {x * (is_row ? factor : expanded(factor))};
  }
  if (goes_to_first(d.node)) return {first_of_largest(x, d.output(0)) * dy};
  const Value most = d.graph.apply("equal", {x, expanded(d.output(0))})[0];
  // 1 is its own square, and sums of squares are FP32: the count may exceed FP16.
  const Value count = d.graph.apply("sum_of_squares", {most}, {{"over", d.node.text("over", "all")}})[0];
  return {most * expanded(cast(cast(dy, Type::f32) / count, x.type().type))};
}

/// The reduction over the rows or the columns of a value in a layout; for parts, of the matrix that the parts
/// store.
ops::AxisReduceProblem reduce_problem_of(const Node& node, Reduction op, const TensorType& in,
                                         const TensorType& out, const ValueLayout& layout, float scale) {
  const bool transposed = bound_layout(layout).transposed;
  const ops::OperandLayout matrix = matrix_layout(in, transposed);
  return {op,      matrix.rows, matrix.cols, (over_of(node) == Over::rows) == !transposed,
          in.type, out.type,    scale};
}

/// The matrix that is reduced: for a value in parts, the matrix in boxes where the parts lie.
ops::Operand matrix_of(Lowering& l, const Node& node) {
  const ops::Operand in = l.input(0);
  const ValueLayout& layout = l.input_layout(0);
  if (!layout.parts) return in;
  std::vector<program::StepId> steps;
  const std::optional<ops::Operand> matrix = l.builder().in_boxes(in, *layout.parts, steps);
  for (const program::StepId step : steps) l.run(step);
  return matrix ? *matrix : l.in_layout(node.inputs[0], bound_layout(layout));
}

template <Reduction op>
void lower_reduce(Lowering& l, const Node& node) {
  const Over over = over_of(node);
  const ops::Operand in = matrix_of(l, node), out = l.output(0);
  const Type type = l.builder().type_of(in), to = l.builder().type_of(out);
  const auto scale = static_cast<float>(scale_of<op>(node));
  if (over != Over::all)
    return l.add(reduce_problem_of(node, op, l.graph().type(node.inputs[0]), l.graph().type(node.outputs[0]),
                                   l.input_layout(0), scale),
                 {in, out});
  l.add_sharing_code({op, in.rows(), in.cols(), type, to, scale}, in, out);
}

/// Predicted seconds of a reduction on tiles, with operands spread over all tiles or in parts.
double seconds_of(Lowering& l, const Node& node, const LayoutChoice& choice) {
  const TensorType &in = l.graph().type(node.inputs[0]), &out = l.graph().type(node.outputs[0]);
  const ops::AxisReduceProblem problem =
      reduce_problem_of(node, Reduction::sum, in, out, choice.inputs[0], 1);
  const std::pair layouts(l.operand_layout(in, choice.inputs[0]), l.operand_layout(out, choice.outputs[0]));
  const std::pair key(operation_of(problem), layouts);
  return seconds_alone(l.builder().machine(), key, [&](const ops::Builder& builder) {
    const ops::Operand given = builder.add("in", program::Role::input, in.type, layouts.first);
    std::vector<program::StepId> steps;
    const ops::Operand matrix = builder.in_boxes(given, layouts.first, steps).value_or(given);
    steps.push_back(ops::add(builder, problem,
                             {matrix, builder.add("out", program::Role::output, out.type, layouts.second)}));
    return builder.in_order(std::move(steps));
  });
}

std::vector<LayoutChoice> reduce_layouts(Lowering& l, const Node& node) {
  const bool is_sum = node.operation->name != "max",
             is_sparse = l.graph().type(node.inputs[0]).pattern != nullptr;
  // Padding of 0 adds nothing.
  if (const auto& form = l.form_of(node.inputs[0]); form && is_sum && over_of(node) == Over::all)
    if (is_sparse || !l.may_have_nan_padding(node.inputs[0]))
      return {{{ValueLayout{.weight = form}}, {kRows}}};
  const ValueLayout& out = over_of(node) == Over::all ? kRows : kTransposed;
  std::vector<LayoutChoice> choices = {{{kRows}, {kRows}}, {{kTransposed}, {out}}};
  if (l.on_host() || over_of(node) == Over::all) return choices;
  // For reductions along rows of the transpose, which parts hold in pieces.
  const TensorType& type = l.graph().type(node.inputs[0]);
  if (over_of(node) == Over::rows && type.elements() > 1 && !l.form_of(node.inputs[0]))
    for (const ValueLayout& parts : l.parted(type))
      if (parts.parts->transposed) choices.push_back({{parts}, {out}});
  for (LayoutChoice& choice : choices) choice.seconds = seconds_of(l, node, choice);
  return choices;
}

template <Reduction op>
std::vector<Case> reduce_cases() {
  std::vector<Case> cases;
  for (const char* over : {"rows", "columns", "all"}) {
    cases.push_back({{{Type::f32, {3, 7, 19}, {}, {}}}, {{"over", over}}});
    if (op != Reduction::maximum) cases.back().attributes["scale"] = 0.5;
    cases.push_back({{{Type::f16, {9, 33}, {}, {}}}, {{"over", over}}});
    cases.push_back({.inputs = {{Type::i32, {9, 33}, {}, {}}},
                     .attributes = {{"over", over}},
                     .below = 100,
                     .differentiable = false});
  }
  cases.push_back({{{Type::f32, {}, {}, {}}}, {{"over", "all"}}});
  if (op == Reduction::maximum)
    for (const Type type : {Type::f32, Type::f16})
      cases.push_back({{{type, {4, 9}, {}, {}}}, {{"over", "columns"}, {"ties", "first"}}});
  return cases;
}

// Expansion.

Types infer_expand(const Signature& s) {
  require_number(s, s.inputs[0]);
  TensorType out = s.inputs[0];
  out.shape = shape_of(s);
  if (out.pattern || !can_broadcast(s.inputs[0], out))
    throw UsageError(fmt::format("{} cannot be expanded to {}", to_string(s.inputs[0]), to_string(out)));
  return {out};
}

std::vector<Array> expand_reference(const Evaluation& e) {
  const TensorType& type = e.output_type(0);
  const ArrayIndex index = broadcast_index(e.input_type(0), type);
  Array y(type.elements());
  for (uint64_t i = 0; i < y.size(); ++i) y[i] = (*e.inputs[0])[index(i)];
  return {y};
}

std::vector<LayoutChoice> expand_layouts(Lowering& l, const Node& node) {
  const bool as_codelets_do =
      broadcast_of(l.graph().type(node.inputs[0]), l.graph().type(node.outputs[0])).has_value();
  return as_codelets_do ? same_layouts(l, node) : row_layouts(l, node);
}

/// Computed as the broadcast maximum of a value and itself.
void lower_expand(Lowering& l, const Node& node) {
  const ops::Operand in = l.input(0), out = l.output(0);
  const TensorType &from = l.graph().type(node.inputs[0]), &to = l.graph().type(node.outputs[0]);
  std::optional<ops::Broadcast> broadcast = broadcast_of(from, to);
  if (!broadcast) return expand_into(l, in, from, out, to);
  if (l.output_layout(0).transposed) broadcast = transposed(*broadcast);
  l.add(ops::BinaryProblem{kernels::Binary::maximum, l.builder().type_of(out), out.rows(), out.cols(), 1,
                           *broadcast, *broadcast},
        {in, in, out});
}

std::vector<Case> expand_cases() {
  const std::vector<int64_t> shape = {4, 9, 21};
  return {{{{Type::f32, {}, {}, {}}}, {{"shape", shape}}},
          {{{Type::f32, {21}, {}, {}}}, {{"shape", shape}}},
          {{{Type::f32, {4, 9, 1}, {}, {}}}, {{"shape", shape}}},
          {{{Type::bf16, {36, 1}, {}, {}}}, {{"shape", std::vector<int64_t>{36, 21}}}},
          {{{Type::f32, {4, 1, 21}, {}, {}}}, {{"shape", shape}}},
          {{{Type::f16, {9, 1}, {}, {}}}, {{"shape", shape}}},
          {.inputs = {{Type::u32, {3, 1, 2, 1, 1}, {}, {}}},
           .attributes = {{"shape", std::vector<int64_t>{3, 5, 2, 2, 3}}},
           .below = 9,
           .differentiable = false}};
}

bool columns_keep_samples(const Divided& divided) {
  return over_of(divided.node) == Over::columns && rows_keep_samples(divided);
}

/// Reductions over everything, or that leave the last dimension last.
std::optional<Reordered> reorder(const Graph& graph, const Node& node, const DimensionOrder& order) {
  const Over over = over_of(node);
  if (over == Over::all) return Reordered{.attributes = node.attributes, .order = {}};
  if (graph.type(node.inputs[0]).shape.empty() || order.back() + 1 != static_cast<int64_t>(order.size()))
    return {};
  if (over == Over::rows) return Reordered{.attributes = node.attributes, .order = {0}};
  return Reordered{.attributes = node.attributes, .order = order};
}

template <Reduction op>
constexpr Operation reduction(std::string_view name) {
  return {
      name,
      1,
      1,
      infer_reduce<op>,
      reduce_gradient<op>,
      reduce_reference<op>,
      reduce_layouts,
      lower_reduce<op>,
      reduce_cases<op>,
      {.keeps_samples = columns_keep_samples, .sums_elements = op != Reduction::maximum, .reorder = reorder}};
}

constexpr Operation kReduce[] = {
    reduction<Reduction::sum>("sum"),
    reduction<Reduction::maximum>("max"),
    reduction<Reduction::sum_of_squares>("sum_of_squares"),
    {"expand",
     1,
     1,
     infer_expand,
     [](const Differentiation& d) { return Gradients{sum_to(*d.dy[0], d.input(0).type())}; },
     expand_reference,
     expand_layouts,
     lower_expand,
     expand_cases,
     {.keeps_samples = broadcasting_keeps_samples}},
};

}  // namespace

std::span<const Operation> reduce_operations() { return kReduce; }

Value expand(Value x, Shape shape) {
  if (x.shape() == shape) return x;
  return x.owner().apply("expand", {x}, {{"shape", as_integers(shape)}})[0];
}

}  // namespace tessera::graph
