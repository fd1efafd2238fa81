// A choice between two values, element by element.
#include <fmt/format.h>
#include <tessera/error.h>

#include "base/integer_types.h"
#include "lower/lowering.h"
#include "operations/broadcast_operands.h"
#include "operations/constants.h"
#include "operations/list.h"
#include "ops/map/elementwise.h"

namespace tessera::graph {
namespace {

Types infer_where(const Signature& s) {
  require_dense(s);
  const TensorType &condition = s.inputs[0], &a = s.inputs[1], &b = s.inputs[2];
  const auto fail = [&](std::string_view why) {
    throw UsageError(fmt::format("{}: {}, {} and {} {}", s.operation, to_string(condition), to_string(a),
                                 to_string(b), why));
  };
  for (const TensorType& type : s.inputs) require_number(s, type);
  if (condition.type != a.type || a.type != b.type) fail("have different types: cast some");
  const std::optional<Shape> choices = common_shape(a.shape, b.shape);
  const std::optional<Shape> shape = choices ? common_shape(condition.shape, *choices) : std::nullopt;
  if (!shape) fail("cannot be broadcast to one shape");
  const TensorType out{a.type, *shape, {}, {}};
  return {out};
}

/// With the attribute "zero_derivative" = 1, the choices are step functions of their common source, as when
/// only numbers that may have a fraction are rounded.
Gradients where_gradient(const Differentiation& d) {
  const Value condition = d.input(0), dy = *d.dy[0];
  if (d.node.integer("zero_derivative", 0) != 0) return {{}, {}, sum_to(less(dy, dy), d.input(2).type())};
  const Value zero = number(dy, 0);
  return {{},
          sum_to(where(condition, dy, zero), d.input(1).type()),
          sum_to(where(condition, zero, dy), d.input(2).type())};
}

std::vector<Array> where_reference(const Evaluation& e) {
  const TensorType& type = e.output_type(0);
  std::vector<ArrayIndex> index;
  for (size_t input = 0; input < 3; ++input) index.push_back(broadcast_index(e.input_type(input), type));
  const auto at = [&](size_t input, uint64_t i) { return (*e.inputs[input])[index[input](i)]; };
  Array y(type.elements());
  for (uint64_t i = 0; i < y.size(); ++i) y[i] = at(at(0, i) != 0 ? 1 : 2, i);
  return {y};
}

void lower_where(Lowering& l, const Node& node) {
  const ops::Operand inputs[] = {broadcast_input(l, node, 0), broadcast_input(l, node, 1),
                                 broadcast_input(l, node, 2)};
  const ops::Operand* largest = &inputs[0];
  for (const ops::Operand& input : inputs)
    if (input.box.elements() > largest->box.elements()) largest = &input;
  const ops::Operand out = l.output_beside(0, *largest);
  l.add(ops::WhereProblem{l.builder().type_of(out), out.rows(), out.cols(), broadcast_of(inputs[0], out),
                          broadcast_of(inputs[1], out), broadcast_of(inputs[2], out)},
        {inputs[0], inputs[1], inputs[2], out});
}

/// Conditions of 0 and 1.
std::vector<Case> where_cases() {
  std::vector<Case> cases;
  const auto add = [&](Type type, Shape condition, Shape a, Shape b) {
    Array given(TensorType{type, condition, {}, {}}.elements());
    for (size_t i = 0; i < given.size(); ++i) given[i] = i * i % 3 == 1 ? 1 : 0;
    cases.push_back({.inputs = {{type, std::move(condition), {}, {}},
                                {type, std::move(a), {}, {}},
                                {type, std::move(b), {}, {}}},
                     .below = 9,
                     .differentiable = !is_integer(type),
                     .given = {{0, std::move(given)}}});
  };
  for (Type type : {Type::f32, Type::f16, Type::bf16}) add(type, {5, 33}, {5, 33}, {5, 33});
  add(Type::f32, {3, 4, 9}, {}, {3, 4, 9});
  add(Type::f32, {9}, {12, 9}, {12, 1});
  add(Type::f32, {12, 1}, {12, 9}, {});
  add(Type::f32, {12, 1}, {9}, {});
  add(Type::f32, {2, 1, 1, 9}, {2, 3, 4, 9}, {4, 1});
  add(Type::i32, {12, 1}, {12, 9}, {});
  return cases;
}

constexpr Operation kWhere[] = {
    {.name = "where",
     .least_inputs = 3,
     .most_inputs = 3,
     .infer = infer_where,
     .gradient = where_gradient,
     .reference = where_reference,
     .layouts = broadcasting_layouts,
     .lower = lower_where,
     .cases = where_cases,
     .traits = {.keeps_samples = broadcasting_keeps_samples, .elementwise = true}}};

}  // namespace

std::span<const Operation> where_operations() { return kWhere; }

Value where(Value condition, Value a, Value b) {
  const Type from = condition.type().type, to = a.type().type;
  // A nonzero number may become 0 in the other type.
  const bool may_vanish = !is_integer(from) && from != to && (is_integer(to) || to == Type::f16);
  if (may_vanish) condition = not_equal(condition, number(condition, 0));
  return a.owner().apply("where", {cast(condition, to), a, b})[0];
}

}  // namespace tessera::graph
