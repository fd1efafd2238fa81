// Structured linear maps of the last dimension: butterflies, Kronecker-sparse factors, circulant and Toeplitz
// matrices, fastfood. Each has an operation for y and one for all gradients.
#include "ops/structured/structured.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lower/lowering.h"
#include "operations/list.h"
#include "operations/unfused.h"
#include "ops/structured/definition.h"

namespace tessera::graph {
namespace {

constexpr std::string_view kGradients = "_gradients";

bool is_structured_gradients(std::string_view operation) { return operation.ends_with(kGradients); }

uint32_t size_of(const Node& node, std::string_view name, std::optional<int64_t> otherwise = {}) {
  const int64_t size = node.integer(name, otherwise);
  if (size < 0 || size > int64_t{~uint32_t{0}})
    throw UsageError(fmt::format("{} = {} of a structured map is out of range", name, size));
  return static_cast<uint32_t>(size);
}

/// The map that attributes describe, for `inputs` features of x.
Structure structure_of(std::string_view operation, const Node& node, uint32_t inputs) {
  if (operation.starts_with("butterfly")) {
    const bool is_complex = node.integer("complex", 0) != 0;
    return Butterfly{.inputs = is_complex ? inputs / 2 : inputs,
                     .outputs = size_of(node, "outputs"),
                     .nblocks = size_of(node, "nblocks", 1),
                     .tied = node.integer("tied", 0) != 0,
                     .complex = is_complex,
                     .decreasing = node.integer("decreasing", 0) != 0};
  }
  if (operation.starts_with("kronecker"))
    return Kronecker{
        size_of(node, "a"),         size_of(node, "b"), size_of(node, "c"), size_of(node, "d"), inputs,
        size_of(node, "outputs", 0)};
  if (operation.starts_with("circulant"))
    return Circulant{size_of(node, "size"), inputs, size_of(node, "outputs", 0)};
  if (operation.starts_with("toeplitz")) return Toeplitz{inputs, size_of(node, "outputs")};
  const std::vector<int64_t>& permutation = node.list("permutation");
  return Fastfood{inputs, size_of(node, "outputs"), {permutation.begin(), permutation.end()}};
}

/// The map of a node in a graph.
Structure structure_of(const Graph& graph, const Node& node) {
  return structure_of(node.operation->name, node, graph.type(node.inputs[0]).cols());
}

/// Throws UsageError unless a parameter is the matrix that programs store.
void require_parameter(const Signature& s, const TensorType& given, std::string_view name,
                       const ops::ParameterMatrix& matrix) {
  if (given.type != s.inputs[0].type || given.pattern || given.rows() != matrix.rows ||
      given.cols() != matrix.cols)
    throw UsageError(fmt::format("{}: {} is {}; it must have rows of {} elements, {} in all, in {}",
                                 s.operation, name, to_string(given), matrix.cols,
                                 uint64_t{matrix.rows} * matrix.cols, tessera::name_of(s.inputs[0].type)));
}

/// Inputs x, dy (of gradients only), and the parameters.
Types infer_structured(const Signature& s) {
  const TensorType& x = s.inputs[0];
  if (x.shape.empty() || x.pattern)
    throw UsageError(fmt::format("{}: x is {}; it must be [..., features]", s.operation, to_string(x)));
  require_float(s, x);
  const Structure structure = structure_of(s.operation, s.attributes, x.cols());
  if (inputs_of(structure) != x.cols())
    throw UsageError(
        fmt::format("{}: x has {} features; complex numbers have two each", s.operation, x.cols()));
  TensorType y = x;
  y.shape.back() = outputs_of(structure);
  const size_t first = is_structured_gradients(s.operation) ? 2 : 1;
  const std::vector<StructuredParameter> parameters = parameters_of(structure);
  const std::vector<ops::ParameterMatrix> matrices = ops::parameter_matrices(structure);
  if (s.inputs.size() != first + parameters.size())
    throw UsageError(fmt::format("{}: {} parameters are missing", s.operation, parameters.size()));
  for (size_t i = 0; i < parameters.size(); ++i)
    require_parameter(s, s.inputs[first + i], parameters[i].name, matrices[i]);
  if (!is_structured_gradients(s.operation)) return {y};
  require_type(s, s.inputs[1], "dy", y);
  Types gradients(s.inputs);
  gradients.erase(gradients.begin() + 1);
  return gradients;
}

Gradients structured_gradient(const Differentiation& d) {
  std::vector<Value> inputs = {d.input(0), *d.dy[0]};
  for (size_t i = 1; i < d.node.inputs.size(); ++i) inputs.push_back(d.input(i));
  const std::vector<Value> all =
      d.graph.apply(std::string(d.node.operation->name) + std::string(kGradients), inputs, d.node.attributes);
  return {all.begin(), all.end()};
}

std::vector<Array> structured_reference(const Evaluation& e) {
  const Structure structure = structure_of(e.graph, e.node);
  const std::vector<ops::StructuredStage> stages = ops::stages_of(structure);
  const bool differentiates = is_structured_gradients(e.node.operation->name);
  const size_t first = differentiates ? 2 : 1;
  Array parameters;
  for (size_t i = first; i < e.inputs.size(); ++i)
    parameters.insert(parameters.end(), e.inputs[i]->begin(), e.inputs[i]->end());
  const uint32_t inputs = inputs_of(structure), outputs = outputs_of(structure);
  Array y, dx, dparameters(parameters.size());
  for (uint32_t row = 0; row < e.input_type(0).rows(); ++row) {
    const auto vectors = ops::apply_stages(stages, parameters,
                                           std::span(*e.inputs[0]).subspan(uint64_t{row} * inputs, inputs));
    y.insert(y.end(), vectors.back().begin(), vectors.back().end());
    if (!differentiates) continue;
    const Array of_row = ops::differentiate_stages(
        stages, parameters, vectors, std::span(*e.inputs[1]).subspan(uint64_t{row} * outputs, outputs),
        dparameters);
    dx.insert(dx.end(), of_row.begin(), of_row.end());
  }
  if (!differentiates) return {y};
  std::vector<Array> gradients = {dx};
  auto from = dparameters.begin();
  for (size_t i = first; i < e.inputs.size(); ++i) {
    const auto to = from + static_cast<int64_t>(e.inputs[i]->size());
    gradients.emplace_back(from, to);
    from = to;
  }
  return gradients;
}

Value taken(Value from, std::vector<int64_t> places, size_t neighbours) {
  return from.owner().apply(
      "select_features", {from},
      {{"places", std::move(places)}, {"neighbours", static_cast<int64_t>(neighbours)}})[0];
}

/// The product of a stage's matrix and x: the terms of each output side by side, and their sums. After the
/// parameters come 0, for outputs with fewer terms than others, and 1.
Value apply_stage(const ops::StructuredStage& stage, Value parameters, Value x) {
  std::vector<std::vector<ops::StructuredTerm>> outputs(stage.outputs);
  for (const ops::StructuredTerm& term : stage.terms) outputs[term.out].push_back(term);
  size_t most = 1;
  for (const auto& terms : outputs) most = std::max(most, terms.size());
  // Constants are rounded, attributes are not.
  double scale = 0;
  for (const ops::StructuredTerm& term : stage.terms) scale = std::max(scale, std::abs(term.scale));
  if (scale == 0) scale = 1;
  const uint32_t features = x.type().cols(), zero = parameters.type().cols() - 2;
  std::vector<int64_t> of_x, of_parameters;
  std::vector<float> scales;
  for (auto& terms : outputs) {
    terms.resize(most, {.in = features, .scale = scale, .parameter = zero});
    for (const ops::StructuredTerm& term : terms) {
      of_x.push_back(term.in);
      of_parameters.push_back(static_cast<int64_t>(term.parameter.value_or(zero + 1)));
      scales.push_back(static_cast<float>(term.scale / scale));
    }
  }
  const auto count = static_cast<uint32_t>(scales.size());
  const Value factors = taken(parameters, std::move(of_parameters), most) *
                        x.graph->constant("", {count}, std::move(scales), x.type().type);
  const Value products = taken(with_features(x, features + 1), std::move(of_x), most) * factors;
  return (most == 1 ? products : sum_neighbours(products, static_cast<uint32_t>(most))) * scale;
}

/// Sparse matrices, one after the other, as they define the map.
std::vector<Value> decompose_structured(const Decomposition& d) {
  Value y = d.inputs[0];
  std::vector<Value> parts;
  for (size_t i = 1; i < d.inputs.size(); ++i)
    parts.push_back(reshape(d.inputs[i], {static_cast<uint32_t>(d.inputs[i].type().elements())}));
  parts.push_back(y.graph->constant("", {2}, {0, 1}, y.type().type));
  const Value parameters = concatenate(parts, 0);
  for (const ops::StructuredStage& stage :
       ops::stages_of(structure_of(d.node.operation->name, d.node, y.type().cols())))
    y = apply_stage(stage, parameters, y);
  return {y};
}

ops::StructuredProblem structured_problem_of(const Graph& graph, const Node& node, bool transposed) {
  return {.structure = structure_of(graph, node),
          .batch = graph.type(node.inputs[0]).rows(),
          .type = graph.type(node.inputs[0]).type,
          .transposed = transposed,
          .gradients = is_structured_gradients(node.operation->name)};
}

/// Samples lie as rows or transposed, parameters as rows. On tiles features are rows, as samples in rows
/// would be converted.
std::vector<LayoutChoice> structured_layouts(Lowering& l, const Node& node) {
  const size_t samples = is_structured_gradients(node.operation->name) ? 2 : 1;
  std::vector<LayoutChoice> choices;
  for (const bool transposed : {false, true}) {
    if (!transposed && !l.on_host()) continue;
    LayoutChoice choice{std::vector<ValueLayout>(node.inputs.size(), kRows),
                        std::vector<ValueLayout>(node.outputs.size(), kRows)};
    std::fill_n(choice.inputs.begin(), samples, ValueLayout{.transposed = transposed});
    choice.outputs[0].transposed = transposed;
    const ops::StructuredPlan plan =
        ops::plan_structured(structured_problem_of(l.graph(), node, transposed), l.builder().machine());
    choice.seconds = plan.chosen.total();
    choice.plan = plan;
    choices.push_back(std::move(choice));
  }
  return choices;
}

void lower_structured(Lowering& l, const Node& node) {
  ops::StructuredProblem problem = structured_problem_of(l.graph(), node, l.input_layout(0).transposed);
  const auto is_used = [&](size_t output) { return l.is_used(node.outputs[output]); };
  ops::StructuredOperands operands{.x = l.input(0), .y = problem.gradients ? l.input(1) : l.output(0)};
  for (size_t i = problem.gradients ? 2 : 1; i < node.inputs.size(); ++i)
    operands.parameters.push_back(l.input(i));
  if (problem.gradients) {
    problem.input_gradient = is_used(0);
    for (size_t i = 1; i < node.outputs.size(); ++i) problem.parameter_gradients |= is_used(i);
    if (problem.input_gradient) operands.dx = l.output(0);
    for (size_t i = 1; problem.parameter_gradients && i < node.outputs.size(); ++i)
      operands.parameter_gradients.push_back(l.output(i));
  }
  const auto* planned = l.planned<ops::StructuredPlan>();
  const bool is_planned = planned != nullptr && problem.input_gradient && problem.parameter_gradients;
  l.run(ops::build_structured(l.builder(), problem,
                              is_planned ? *planned : ops::plan_structured(problem, l.builder().machine()),
                              operands));
}

TensorType values(Shape shape) { return {Type::f32, std::move(shape), {}, {}}; }

/// Inputs of an operation for rows of x.
Case structured_case_of(std::string_view operation, Shape x, Attributes attributes) {
  Node node;
  node.attributes = attributes;
  const Structure structure = structure_of(operation, node, x.back());
  Case c{.inputs = {values(x)},
         .attributes = std::move(attributes),
         .differentiable = !is_structured_gradients(operation)};
  x.back() = outputs_of(structure);
  if (is_structured_gradients(operation)) c.inputs.push_back(values(x));
  for (const ops::ParameterMatrix& matrix : ops::parameter_matrices(structure))
    c.inputs.push_back(values(matrix.rows == 1 ? Shape{matrix.cols} : Shape{matrix.rows, matrix.cols}));
  return c;
}

std::vector<int64_t> shuffled(int64_t size, int64_t stacks) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < size * stacks; ++i) places.push_back((5 * i + 3 + i / size) % size);
  return places;
}

constexpr std::string_view kButterfly[] = {"butterfly", "butterfly_gradients"};
constexpr std::string_view kKronecker[] = {"kronecker", "kronecker_gradients"};
constexpr std::string_view kCirculant[] = {"circulant", "circulant_gradients"};
constexpr std::string_view kToeplitz[] = {"toeplitz", "toeplitz_gradients"};
constexpr std::string_view kFastfood[] = {"fastfood", "fastfood_gradients"};

template <bool gradients>
std::vector<Case> butterfly_cases() {
  const std::string_view name = kButterfly[gradients];
  return {structured_case_of(name, {3, 7, 16}, {{"outputs", int64_t{16}}}),
          structured_case_of(name, {18, 13}, {{"outputs", int64_t{37}}, {"decreasing", int64_t{1}}}),
          structured_case_of(name, {5, 16}, {{"outputs", int64_t{9}}, {"nblocks", int64_t{3}}}),
          structured_case_of(name, {33, 32}, {{"outputs", int64_t{32}}, {"tied", int64_t{1}}}),
          structured_case_of(name, {6, 16}, {{"outputs", int64_t{8}}, {"complex", int64_t{1}}})};
}

template <bool gradients>
std::vector<Case> kronecker_cases() {
  const auto factor = [](int64_t a, int64_t b, int64_t c, int64_t d) {
    return Attributes{{"a", a}, {"b", b}, {"c", c}, {"d", d}};
  };
  const std::string_view name = kKronecker[gradients];
  return {structured_case_of(name, {3, 7, 24}, factor(3, 5, 8, 1)),
          structured_case_of(name, {18, 24}, factor(1, 4, 6, 4)),
          structured_case_of(name, {5, 36}, factor(2, 4, 6, 3)),
          structured_case_of(name, {33, 22}, factor(3, 4, 8, 1))};
}

template <bool gradients>
std::vector<Case> circulant_cases() {
  const std::string_view name = kCirculant[gradients];
  return {structured_case_of(name, {3, 7, 16}, {{"size", int64_t{16}}}),
          structured_case_of(name, {18, 20}, {{"size", int64_t{21}}, {"outputs", int64_t{11}}})};
}

template <bool gradients>
std::vector<Case> toeplitz_cases() {
  const std::string_view name = kToeplitz[gradients];
  return {structured_case_of(name, {3, 7, 16}, {{"outputs", int64_t{16}}}),
          structured_case_of(name, {18, 9}, {{"outputs", int64_t{21}}})};
}

template <bool gradients>
std::vector<Case> fastfood_cases() {
  const std::string_view name = kFastfood[gradients];
  return {structured_case_of(name, {3, 7, 16}, {{"outputs", int64_t{16}}, {"permutation", shuffled(16, 1)}}),
          structured_case_of(name, {18, 27}, {{"outputs", int64_t{50}}, {"permutation", shuffled(32, 2)}})};
}

constexpr Operation gradients_of(std::string_view name, size_t inputs, std::vector<Case> (*cases)()) {
  return {.name = name,
          .least_inputs = inputs,
          .most_inputs = inputs,
          .infer = infer_structured,
          .reference = structured_reference,
          .layouts = structured_layouts,
          .lower = lower_structured,
          .cases = cases,
          .traits = {.kind = OperationKind::product}};
}

constexpr Operation map_of(std::string_view name, size_t inputs, std::vector<Case> (*cases)()) {
  Operation map = gradients_of(name, inputs, cases);
  map.gradient = structured_gradient;
  map.decompose = decompose_structured;
  return map;
}

constexpr Operation kStructured[] = {
    map_of(kButterfly[0], 2, butterfly_cases<false>), gradients_of(kButterfly[1], 3, butterfly_cases<true>),
    map_of(kKronecker[0], 2, kronecker_cases<false>), gradients_of(kKronecker[1], 3, kronecker_cases<true>),
    map_of(kCirculant[0], 2, circulant_cases<false>), gradients_of(kCirculant[1], 3, circulant_cases<true>),
    map_of(kToeplitz[0], 2, toeplitz_cases<false>),   gradients_of(kToeplitz[1], 3, toeplitz_cases<true>),
    map_of(kFastfood[0], 4, fastfood_cases<false>),   gradients_of(kFastfood[1], 5, fastfood_cases<true>),
};

int64_t number(bool value) { return value ? 1 : 0; }

}  // namespace

std::span<const Operation> structured_operations() { return kStructured; }

Value butterfly(Value x, Value twiddle, const Butterfly& of, Form form) {
  if (form == Form::unfused) return unfused_butterfly(x, twiddle, of);
  return x.owner().apply("butterfly", {x, twiddle},
                         {{"outputs", int64_t{of.outputs}},
                          {"nblocks", int64_t{of.nblocks}},
                          {"tied", number(of.tied)},
                          {"complex", number(of.complex)},
                          {"decreasing", number(of.decreasing)}})[0];
}

Value kronecker(Value x, Value weight, const Kronecker& of) {
  return x.owner().apply("kronecker", {x, weight},
                         {{"a", int64_t{of.a}},
                          {"b", int64_t{of.b}},
                          {"c", int64_t{of.c}},
                          {"d", int64_t{of.d}},
                          {"outputs", int64_t{of.outputs}}})[0];
}

Value circulant(Value x, Value c, uint32_t outputs) {
  return x.owner().apply(
      "circulant", {x, c},
      {{"size", static_cast<int64_t>(c.type().elements())}, {"outputs", int64_t{outputs}}})[0];
}

Value toeplitz(Value x, Value c, uint32_t outputs) {
  return x.owner().apply("toeplitz", {x, c}, {{"outputs", int64_t{outputs}}})[0];
}

Value fastfood(Value x, Value s, Value g, Value b, const Fastfood& of, Form form) {
  if (form == Form::unfused) return unfused_fastfood(x, s, g, b, of);
  return x.owner().apply("fastfood", {x, s, g, b},
                         {{"outputs", int64_t{of.outputs}}, {"permutation", as_integers(of.permutation)}})[0];
}

}  // namespace tessera::graph
