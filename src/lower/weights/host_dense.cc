#include "lower/weights/host_dense.h"

#include <utility>

#include "ops/dense/host/host_dense.h"
#include "ops/map/fill.h"

namespace tessera::graph {
namespace {

ops::HostDenseProblem host_dense_problem_of(const ops::PanelLayout& panels, Type type,
                                            const LinearCall& call) {
  return {.m = panels.m,
          .k = panels.k,
          .n = call.n,
          .product = call.product,
          .weights = type,
          .values = type,
          .activation = call.activation,
          .bias = call.bias.has_value(),
          .relu = call.mask.has_value(),
          .adds = call.adds,
          .window = call.window};
}

ops::HostDenseOperands operands_of(const LinearCall& call) {
  return {.w = call.values, .x = call.x, .y = call.y, .bias = call.bias, .relu = call.mask};
}

}  // namespace

program::StepId HostDenseWeight::add(const ops::Builder& builder, const LinearCall& call) {
  const ops::HostDenseProblem problem = host_dense_problem_of(panels_, type_, call);
  return build_host_dense(builder, problem, plan_host_dense(problem, builder.machine()), operands_of(call));
}

std::optional<program::StepId> HostDenseWeight::add_updating(const ops::Builder& builder,
                                                             const LinearCall& call,
                                                             const LinearUpdate& update) {
  const ops::HostDenseProblem problem = host_dense_problem_of(panels_, type_, call);
  return build_host_dense_strips(builder, problem, plan_host_dense(problem, builder.machine()),
                                 operands_of(call), {update.operation, 0, update.operands});
}

/// Between panels and the transpose with all their rows, of which each panel has a few columns.
program::CopyGroup HostDenseWeight::panels_to_columns(program::VariableId panels,
                                                      program::VariableId columns) const {
  constexpr uint32_t kPanel = ops::PanelLayout::kRows;
  const program::Box run{0, 1, 0, kPanel};
  return {panels,
          columns,
          panels_.rows() * panels_.k,
          program::BoxSeries::grid(run, {1, 0}, panels_.k, {0, kPanel}),
          program::BoxSeries::grid(run, {0, kPanel}, panels_.k, {1, 0}),
          {},
          {},
          {}};
}

ops::Operand HostDenseWeight::columns(const ops::Builder& builder, const ops::Operand& like) const {
  return builder.temporary(builder.program().variable(like.variable).name + ".columns", builder.type_of(like),
                           panels_.k, panels_.rows() * ops::PanelLayout::kRows, {}, builder.purpose_of(like));
}

ops::OperandLayout HostDenseWeight::transposed() const {
  return {.rows = panels_.k, .cols = panels_.m, .transposed = true};
}

ops::Operand HostDenseWeight::matrix_of(const ops::Builder& builder, const ops::Operand& stored,
                                        const ops::OperandLayout& wants,
                                        std::vector<program::StepId>& steps) const {
  ops::Operand all = columns(builder, stored);
  steps.push_back(builder.copy({"panels to columns", {panels_to_columns(stored.variable, all.variable)}}));
  all.box.cols = panels_.m;
  return builder.bring(all, transposed(), wants, steps);
}

ops::Operand HostDenseWeight::stored_of(const ops::Builder& builder, const ops::Operand& matrix,
                                        const ops::OperandLayout& has,
                                        std::vector<program::StepId>& steps) const {
  ops::Operand all = columns(builder, matrix);
  if (all.cols() != panels_.m)
    steps.push_back(
        ops::add(builder, ops::FillProblem{builder.type_of(all), all.rows(), all.cols(), 0}, {all}));
  const ops::Operand rows{all.variable, {0, panels_.k, 0, panels_.m}};
  if (has.transposed)
    builder.send(matrix, rows, steps);
  else
    builder.convert(matrix, has, rows, transposed(), steps);
  const ops::Operand stored =
      builder.temporary(builder.program().variable(matrix.variable).name + ".panels", builder.type_of(matrix),
                        panels_.rows(), panels_.cols(), {}, builder.purpose_of(matrix));
  program::CopyGroup group = panels_to_columns(stored.variable, all.variable);
  std::swap(group.from, group.to);
  std::swap(group.source, group.target);
  steps.push_back(builder.copy({"columns to panels", {std::move(group)}}));
  return stored;
}

std::vector<float> HostDenseWeight::store(std::span<const float> values) const {
  std::vector<float> stored(panels_.elements());
  panels_.store(MatrixView<const float>{values.data(), panels_.k, 1}, stored.data());
  return stored;
}

std::vector<float> HostDenseWeight::load(std::span<const float> stored) const {
  std::vector<float> values(uint64_t{panels_.m} * panels_.k);
  panels_.load(stored.data(), MatrixView<float>{values.data(), panels_.k, 1});
  return values;
}

}  // namespace tessera::graph
