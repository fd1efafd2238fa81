#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <utility>

#include "ops/dense/host/group.h"
#include "ops/window.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::VertexGroup;

/// The operand of a field, or none.
const Operand* operand_of(const HostDenseOperands& o, DenseRole role) {
  switch (role) {
    case DenseRole::x: return &o.x;
    case DenseRole::w: return &o.w;
    case DenseRole::y: return &o.y;
    case DenseRole::bias: return o.bias ? &*o.bias : nullptr;
    case DenseRole::relu: return o.relu ? &*o.relu : nullptr;
    case DenseRole::scalars: return o.scalars ? &*o.scalars : nullptr;
    case DenseRole::window: return o.window ? &*o.window : nullptr;
    case DenseRole::scratch: break;
  }
  return nullptr;
}

}  // namespace

void check_operands(const Builder& builder, const HostDenseProblem& p, const HostDenseOperands& o,
                    bool has_weight) {
  const bool is_sddmm = p.product == ProductKind::sddmm, is_input = p.product == ProductKind::input_gradient;
  if (has_weight)
    builder.require(o.w, is_sddmm ? "dW" : "W", p.weights, p.layout().rows(), p.layout().cols());
  if (p.window)
    builder.require(o.x, "images", p.values, images_of(p).rows, images_of(p).cols);
  else
    builder.require(o.x, is_input ? "dX" : "X", p.values, p.n, p.k);
  builder.require(o.y, p.product == ProductKind::forward ? "Y" : "dY", p.values, p.n, p.m);
  const auto check_optional = [&](bool wanted, const std::optional<Operand>& given, std::string_view name,
                                  Type type, uint32_t rows, uint32_t cols) {
    if (wanted != given.has_value())
      throw UsageError(wanted ? fmt::format("the product has a {}; pass its operand", name)
                              : fmt::format("the product has no {}, so it takes no operand for one", name));
    if (given) builder.require(*given, name, type, rows, cols);
  };
  check_optional(p.bias, o.bias, "bias", Type::f32, 1, is_input ? p.k : p.m);
  check_optional(p.relu, o.relu, "ReLU", p.values, o.x.rows(), o.x.cols());
  if (o.scalars) builder.require(*o.scalars, "alpha and beta", Type::f32, 1, 2);
}

std::vector<DensePart> parts_of(const HostDenseProblem& problem, const HostDensePartition& partition) {
  std::vector<DensePart> parts;
  for (uint32_t i = 0; i < partition.panel_parts(); ++i)
    for (uint32_t j = 0; j < partition.col_parts(); ++j) parts.push_back(part_of(problem, partition, i, j));
  return parts;
}

Operand scratch_of(const Builder& builder, const HostDenseProblem& problem, uint32_t tiles,
                   const std::vector<DensePart>& parts) {
  uint32_t floats = 0;
  for (const DensePart& part : parts)
    floats = std::max(floats, box_of(problem, part, DenseRole::scratch).cols);
  return builder.temporary("scratch", Type::f32, tiles, floats);
}

VertexGroup group_of(const HostDenseProblem& problem, const HostDenseOperands& operands,
                     const Operand& scratch, const std::vector<DensePart>& parts,
                     const std::vector<Box>& w_boxes) {
  VertexGroup group;
  group.codelet = &dense_codelet(problem);
  group.tiles = static_cast<uint32_t>(parts.size());
  for (DenseRole role : dense_roles(problem.product)) {
    const Operand* operand = operand_of(operands, role);
    if (role == DenseRole::scratch) {
      group.fields.push_back({scratch.variable, BoxSeries::stepped({0, 1, 0, scratch.cols()}, {.row = 1})});
    } else if (operand == nullptr) {
      group.fields.push_back({scratch.variable, BoxSeries::same(Box{})});
    } else if (role == DenseRole::w && !w_boxes.empty()) {
      group.fields.push_back({operand->variable, BoxSeries::table(w_boxes)});
    } else {
      std::vector<Box> boxes;
      for (const DensePart& part : parts) {
        const Box box = box_of(problem, part, role);
        boxes.push_back(box.empty() ? Box{} : operand->inside(box));
      }
      group.fields.push_back({operand->variable, BoxSeries::table(std::move(boxes))});
    }
  }
  for (size_t i = 0; i < group.codelet->params.size(); ++i) {
    std::vector<int64_t> values;
    for (const DensePart& part : parts) values.push_back(dense_params(problem, part)[i]);
    const bool is_same = std::ranges::count(values, values.front()) == std::ssize(values);
    group.params.push_back(is_same ? program::Param(values.front()) : program::Param(std::move(values)));
  }
  return group;
}

program::StepId build_host_dense(const Builder& builder, const HostDenseProblem& problem,
                                 const HostDensePlan& plan, const HostDenseOperands& given) {
  check_operands(builder, problem, given, true);
  HostDenseOperands operands = given;
  if (problem.window) operands.window = window_constant(builder, *problem.window);
  const std::vector<DensePart> parts = parts_of(problem, plan.partition);
  const Operand scratch = scratch_of(builder, problem, plan.partition.tiles_used(), parts);
  program::ComputeSet set{std::string(dense_name(problem.product)), program::Phase::compute, {}};
  set.groups.push_back(group_of(problem, operands, scratch, parts));
  return builder.execute(std::move(set));
}

}  // namespace tessera::ops
