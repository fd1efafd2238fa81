// Integers that are exact, or an error of the run.
#include <fmt/format.h>
#include <tessera/error.h>

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lower/lowering.h"
#include "operations/broadcast_operands.h"
#include "operations/list.h"
#include "ops/map/elementwise.h"

namespace tessera::graph {
namespace {

using kernels::Exact;

constexpr std::pair<std::string_view, Exact> kExactFunctions[] = {
    {"add", Exact::add}, {"sub", Exact::sub}, {"mul", Exact::mul}};

Exact exact_function(const Node& node) {
  const std::string asked = node.text("function");
  for (const auto& [name, function] : kExactFunctions)
    if (name == asked) return function;
  throw UsageError(fmt::format("exact: unknown function '{}' (choose from add, sub, mul)", asked));
}

Types infer_exact(const Signature& s) {
  require_dense(s);
  exact_function(s.attributes);
  const TensorType &a = s.inputs[0], &b = s.inputs[1];
  const std::optional<Shape> shape = common_shape(a.shape, b.shape);
  if (a.type != Type::i32 || b.type != Type::i32 || !shape)
    throw UsageError(fmt::format("{}: {} and {}: both must be i32, of shapes that can be broadcast to one",
                                 s.operation, to_string(a), to_string(b)));
  const TensorType out{Type::i32, *shape, {}, {}};
  return {out};
}

double exact_value(Exact function, double a, double b) {
  switch (function) {
    case Exact::add: return a + b;
    case Exact::sub: return a - b;
    case Exact::mul: return a * b;
  }
  return a;
}

std::vector<Array> exact_reference(const Evaluation& e) {
  const Exact function = exact_function(e.node);
  const TensorType& type = e.output_type(0);
  const ArrayIndex a = broadcast_index(e.input_type(0), type), b = broadcast_index(e.input_type(1), type);
  Array y(type.elements());
  for (uint64_t i = 0; i < y.size(); ++i) {
    y[i] = exact_value(function, (*e.inputs[0])[a(i)], (*e.inputs[1])[b(i)]);
    if (y[i] < std::numeric_limits<int32_t>::min() || y[i] > std::numeric_limits<int32_t>::max())
      throw UsageError(
          fmt::format("{} of integers is {:.0f}, which is beyond 32 bits", e.node.text("function"), y[i]));
  }
  return {y};
}

void lower_exact(Lowering& l, const Node& node) {
  const ops::Operand a = broadcast_input(l, node, 0), b = broadcast_input(l, node, 1);
  const ops::Operand out = l.output_beside(0, a.box.elements() < b.box.elements() ? b : a);
  l.add(ops::ExactProblem{exact_function(node), out.rows(), out.cols(), broadcast_of(a, out),
                          broadcast_of(b, out)},
        {a, b, out});
}

std::vector<Case> exact_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* function, Shape a, Shape b) {
    cases.push_back({.inputs = {{Type::i32, std::move(a), {}, {}}, {Type::i32, std::move(b), {}, {}}},
                     .attributes = {{"function", std::string(function)}},
                     .below = 4,
                     .differentiable = false});
  };
  add("add", {12, 9}, {12, 9});
  add("sub", {12, 9}, {9});
  add("mul", {12, 1}, {12, 9});
  add("add", {}, {2, 5, 9});
  add("mul", {3, 1, 5, 9}, {4, 1, 9});
  return cases;
}

constexpr Operation kExact[] = {
    {.name = "exact",
     .least_inputs = 2,
     .most_inputs = 2,
     .infer = infer_exact,
     .reference = exact_reference,
     .layouts = broadcasting_layouts,
     .lower = lower_exact,
     .cases = exact_cases,
     .traits = {.keeps_samples = broadcasting_keeps_samples, .elementwise = true, .zero_derivative = true}}};

}  // namespace

std::span<const Operation> exact_operations() { return kExact; }

}  // namespace tessera::graph
