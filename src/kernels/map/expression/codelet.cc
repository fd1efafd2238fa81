#include "kernels/map/expression/codelet.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/map/cast/codelet.h"
#include "kernels/map/elementwise/codelet.h"
#include "kernels/map/elementwise/cost.h"
#include "kernels/map/reduce/codelet.h"

namespace tessera::kernels {
namespace {

using program::Codelet;
using program::FieldSpec;
using program::FieldView;
using program::Phase;
using program::Vertex;

using Kind = ExpressionStep::Kind;

constexpr FieldSpec kInputs[kMostExpressionInputs] = {{.name = "a"}, {.name = "b"}, {.name = "c"},
                                                      {.name = "d"}, {.name = "e"}, {.name = "f"},
                                                      {.name = "g"}, {.name = "h"}};
constexpr FieldSpec kResults[kMostExpressionResults] = {{.name = "x", .access = program::Access::out},
                                                        {.name = "y", .access = program::Access::out},
                                                        {.name = "z", .access = program::Access::out}};

template <size_t inputs, size_t results>
constexpr auto kFieldsOf = [] {
  std::array<FieldSpec, inputs + results> fields;
  std::copy_n(kInputs, inputs, fields.begin());
  std::copy_n(kResults, results, fields.begin() + inputs);
  return fields;
}();

constexpr std::string_view kParams[kMostExpressionSteps + kMostExpressionResults] = {
    "step_1", "step_2",  "step_3",  "step_4",  "step_5",   "step_6",   "step_7",  "step_8",
    "step_9", "step_10", "step_11", "step_12", "result_1", "result_2", "result_3"};

/// The parameters of the steps and the results, and for reductions whether each is of a column or a row.
template <size_t results, bool is_reduced>
constexpr auto kParamsOf = [] {
  std::array<std::string_view, kMostExpressionSteps + results + (is_reduced ? 1 : 0)> params;
  std::copy_n(kParams, kMostExpressionSteps + results, params.begin());
  if constexpr (is_reduced) params.back() = "over";
  return params;
}();
ReduceOver reduced_over(const Vertex& v) { return static_cast<ReduceOver>(v.params.back()); }

/// The codelet's name: the prefix and both numbers, of one digit each.
template <size_t inputs, size_t results, bool is_reduced>
constexpr auto kName = [] {
  constexpr std::string_view prefix = is_reduced ? "reduced_expression_" : "expression_";
  std::array<char, prefix.size() + 3> name;
  std::ranges::copy(prefix, name.begin());
  name[prefix.size()] = '0' + inputs;
  name[prefix.size() + 1] = '_';
  name[prefix.size() + 2] = '0' + results;
  return name;
}();

/// A matrix of values between two steps.
struct Computed {
  std::vector<std::byte> bytes;
  FieldView field;

  Computed(Type type, const FieldView& shape)
      : bytes(shape.elements() * size_of(type)),
        field{bytes.data(), type, shape.rows, shape.cols, shape.cols, 1} {}
};

const Codelet& codelet_of(const ExpressionStep& step) {
  switch (step.kind) {
    case Kind::unary: return codelet_of(static_cast<Unary>(step.function));
    case Kind::binary: return codelet_of(static_cast<Binary>(step.function));
    case Kind::where: return where_codelet;
    default: return cast_codelet;
  }
}

FieldView part_of(FieldView field, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols) {
  field.data = address_of(field, row, col);
  field.rows = std::min(rows, field.rows - row);
  field.cols = std::min(cols, field.cols - col);
  return field;
}

/// The references of the reductions of parts of a value.
void reduce_parts(const ExpressionResult& result, ReduceOver over, const FieldView& from,
                  const FieldView& to) {
  const int64_t params[] = {static_cast<int64_t>(over), param_of(result.scale)};
  const Codelet& codelet = codelet_of(result.reduction);
  const auto reduce_part = [&](const FieldView& part, const FieldView& of_part) {
    const FieldView both[] = {part, of_part};
    codelet.reference({both, params});
  };
  if (over == ReduceOver::columns)
    for (uint32_t row = 0; row < to.rows; ++row)
      reduce_part(part_of(from, row * kPartRows, kPartRows, 0, from.cols), part_of(to, row, 1, 0, to.cols));
  else
    for (uint32_t col = 0; col < to.cols; ++col)
      reduce_part(part_of(from, 0, from.rows, col * kPieceCols, kPieceCols), part_of(to, 0, to.rows, col, 1));
}

/// The references of the steps, one after the other.
void reference(const Vertex& v, size_t results, bool is_reduced) {
  const Expression expression = expression_of(v.params, results);
  std::vector<FieldView> values(v.fields.begin(), v.fields.end() - static_cast<std::ptrdiff_t>(results));
  FieldView shape;
  for (const FieldView& input : values)
    shape.rows = std::max(shape.rows, input.rows), shape.cols = std::max(shape.cols, input.cols);
  for (FieldView& input : values) input = broadcast_to(input, shape);
  std::vector<Computed> computed;
  for (const ExpressionStep& step : expression.steps) {
    computed.emplace_back(step.type, shape);
    std::vector<FieldView> fields;
    for (size_t i = 0; i < step.operand_count(); ++i) fields.push_back(values[step.operands[i]]);
    fields.push_back(computed.back().field);
    const int64_t factor = param_of(step.factor);
    const Codelet& codelet = codelet_of(step);
    codelet.reference({fields, {&factor, codelet.params.size()}});
    values.push_back(computed.back().field);
  }
  for (size_t r = 0; r < results; ++r) {
    const ExpressionResult& result = expression.results[r];
    const FieldView from = values[result.value], to = v.fields[v.fields.size() - results + r];
    const FieldView both[] = {from, to};
    is_reduced ? reduce_parts(result, reduced_over(v), from, to) : cast_codelet.reference({both, {}});
  }
}

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m, size_t results, bool is_reduced) {
  const size_t inputs = v.fields.size() - results;
  const Expression expression = expression_of(v.params, results);
  std::vector<Type> types;
  double rows = 0, cols = 0, operations = 0;
  for (const FieldView& input : v.fields.first(inputs)) {
    types.push_back(input.type);
    rows = std::max<double>(rows, input.rows);
    cols = std::max<double>(cols, input.cols);
  }
  for (const ExpressionStep& step : expression.steps) {
    if (step.kind == Kind::unary) operations += host_operations(static_cast<Unary>(step.function));
    if (step.kind == Kind::binary) operations += host_operations(static_cast<Binary>(step.function));
    if (step.kind == Kind::where) operations += 2;
    for (size_t i = 0; i < step.operand_count(); ++i) operations += widen_operations(types[step.operands[i]]);
    operations += round_operations(step.type);
    types.push_back(step.type);
  }
  HostWork work = traffic_of(v.fields, inputs);
  work.vector_operations = (operations + static_cast<double>(results)) * rows * cols;
  return in_phase(is_reduced ? Phase::reduce : Phase::compute, host_cycles(m, work));
}

template <size_t inputs, size_t results, bool is_reduced>
constexpr Codelet make_codelet() {
  return {.name = {kName<inputs, results, is_reduced>.data(), kName<inputs, results, is_reduced>.size()},
          .fields = kFieldsOf<inputs, results>,
          .params = kParamsOf<results, is_reduced>,
          .reference = [](const Vertex& v) { reference(v, results, is_reduced); },
          .simd =
              [](const Vertex& v) {
                const Expression expression = expression_of(v.params, results);
                is_reduced ? evaluate_reduced(expression, reduced_over(v), v.fields)
                           : evaluate(expression, v.fields);
              },
          .cost = [](const Vertex& v, const machine::Machine& m) { return cost(v, m, results, is_reduced); },
          .runs_on = program::RunsOn::hosts};
}

/// The number of a codelet among all, by which its numbers of inputs and results follow.
constexpr size_t kOfEachKind = kMostExpressionInputs * kMostExpressionResults;
constexpr size_t index_of(size_t inputs, size_t results, bool is_reduced) {
  return (is_reduced ? kOfEachKind : 0) + (inputs - 1) * kMostExpressionResults + results - 1;
}

template <size_t... index>
constexpr std::array<Codelet, sizeof...(index)> make_all(std::index_sequence<index...>) {
  return {make_codelet<index % kOfEachKind / kMostExpressionResults + 1, index % kMostExpressionResults + 1,
                       (index >= kOfEachKind)>()...};
}
constexpr std::array<Codelet, 2 * kOfEachKind> kAll = make_all(std::make_index_sequence<2 * kOfEachKind>());

template <size_t... index>
consteval std::array<ListedCodelet, sizeof...(index)> list_all(std::index_sequence<index...>) {
  return {ListedCodelet(kAll[index])...};
}

}  // namespace

const Codelet& expression_codelet(size_t inputs, size_t results, bool is_reduced) {
  return kAll.at(index_of(inputs, results, is_reduced));
}

std::span<const ListedCodelet> expression_codelets() {
  static constexpr auto kListed = list_all(std::make_index_sequence<2 * kOfEachKind>());
  return kListed;
}

}  // namespace tessera::kernels
