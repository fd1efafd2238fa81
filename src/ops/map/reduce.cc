#include "ops/map/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/integer_types.h"
#include "base/memo.h"
#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "ops/map/key.h"
#include "ops/owners.h"
#include "ops/split.h"
#include "ops/types.h"

namespace tessera::ops {

using program::Box;
using program::MappedBox;
using program::Role;
using program::StepId;

namespace {

/// The parts of an axis, and groups of its results, in the order in which a matrix that lies row by row on
/// all tiles has them.
class AxisParts {
 public:
  AxisParts(const Builder& builder, const AxisReduceProblem& problem, uint32_t parts)
      : builder_(builder),
        p_(problem),
        axis_(split_evenly(p_.length(), parts)),
        results_(split_evenly(p_.results(), std::clamp(builder.machine().tiles / parts, 1U, p_.results()))) {}

  StepId build(const Operand& in, const Operand& out) const {
    const Type sums = is_integer(p_.from) ? p_.from : Type::f32;
    const uint32_t parts = count(axis_);
    OwnerField from{in, {}};
    std::vector<MappedBox> mapping;
    for (uint32_t i = 0; i < parts * count(results_); ++i) {
      const uint32_t part = p_.over_rows ? i / count(results_) : i % parts;
      const uint32_t group = p_.over_rows ? i % count(results_) : i / parts;
      from.boxes.push_back(box(axis_[part], axis_[part + 1], group));
      mapping.push_back({box(part, part + 1, group), i});
    }
    const AxisReduceProblem rest{kernels::joining(p_.op),
                                 p_.over_rows ? parts : p_.rows,
                                 p_.over_rows ? p_.cols : parts,
                                 p_.over_rows,
                                 sums,
                                 p_.to,
                                 p_.scale};
    const Operand partial = builder_.temporary("partial", sums, rest.rows, rest.cols, mapping);
    MapOperation operation = operation_of(p_);
    operation.params.back() = kernels::param_of(1);
    const StepId first =
        builder_.execute({std::string(operation.codelet->name), program::Phase::reduce,
                          groups_of_owners(mapping, *operation.codelet, {from, {partial, boxes_of(mapping)}},
                                           {operation.params.begin(), operation.params.end()})});
    return builder_.sequence({first, add(builder_, rest, {partial, out})});
  }

 private:
  static uint32_t count(const std::vector<uint32_t>& first) {
    return static_cast<uint32_t>(first.size() - 1);
  }

  /// The box of the elements `begin` to `end` of the axis, for a group of results.
  Box box(uint32_t begin, uint32_t end, uint32_t group) const {
    const uint32_t first = results_[group], size = results_[group + 1] - first;
    return p_.over_rows ? Box{begin, end - begin, first, size} : Box{first, size, begin, end - begin};
  }

  const Builder& builder_;
  const AxisReduceProblem& p_;
  std::vector<uint32_t> axis_, results_;  ///< the first of each, and the end
};

StepId build_as(const Builder& builder, const AxisReduceProblem& problem,
                const AxisReducePartition& partition, std::span<const Operand> operands) {
  if (partition.parts > 1)
    return AxisParts(builder, problem, partition.parts).build(operands[0], operands[1]);
  return build_map(builder, operation_of(problem), partition.whole, operands);
}

/// Partitions with enough parts for results, or parts of them, to keep all tiles busy.
std::vector<AxisReducePartition> parted(const AxisReduceProblem& problem, uint32_t tiles) {
  constexpr uint32_t kFewResults = 4, kLeastElements = 8;  // of a part
  std::vector<AxisReducePartition> partitions;
  if (problem.length() < tiles || kFewResults * uint64_t{problem.results()} > tiles) return partitions;
  for (uint32_t parts = tiles; parts > 1 && uint64_t{parts} * problem.results() >= tiles; parts /= 2)
    if (uint64_t{kLeastElements} * parts <= problem.length()) partitions.push_back({.parts = parts});
  return partitions;
}

}  // namespace

MapOperation operation_of(const ReduceProblem& p) {
  require_float(p.from, "a reduction");
  require_float(p.to, "a reduction");
  MapOperation operation{.codelet = &kernels::reduce_sum_codelet,
                         .phase = program::Phase::reduce,
                         .rows = 1,
                         .cols = p.elements};
  operation.operands = {{"partials", p.from, Role::input, p.partials, p.elements, false, true},
                        {"out", p.to, Role::output, 1, p.elements}};
  operation.params = {kernels::param_of(p.scale)};
  return operation;
}

MapOperation operation_of(const AxisReduceProblem& p) {
  const auto require = p.from == p.to && p.scale == 1 ? require_number : require_float;
  require(p.from, "a reduction");
  require(p.to, "a reduction");
  const uint32_t rows = p.over_rows ? 1 : p.rows;
  const uint32_t cols = p.over_rows ? p.cols : 1;
  MapOperation operation{
      .codelet = &kernels::codelet_of(p.op), .phase = program::Phase::reduce, .rows = rows, .cols = cols};
  operation.operands = {{"in", p.from, Role::input, p.rows, p.cols, !p.over_rows, p.over_rows},
                        {"out", p.to, Role::output, rows, cols}};
  const auto over = p.over_rows ? kernels::ReduceOver::columns : kernels::ReduceOver::rows;
  operation.params = {static_cast<int64_t>(over), kernels::param_of(p.scale)};
  return operation;
}

AxisReducePlan plan(const Builder& builder, const AxisReduceProblem& problem,
                    const std::vector<Operand>& operands) {
  const MapOperation operation = operation_of(problem);
  const auto unparted = [&] {
    MapPlan whole = plan_map(builder, operation, operands);
    return AxisReducePlan{{1, whole}, whole.chosen, whole.candidates};
  };
  if (builder.is_host() || parted(problem, builder.machine().tiles).empty()) return unparted();
  const auto evaluate = [&](const AxisReducePartition& partition) {
    if (partition.parts == 1) return partition.whole.chosen;
    return predict(builder, fmt::format("{} parts of the axis", partition.parts), operands,
                   [&](const Builder& scratch, std::span<const Operand> copies) {
                     return build_as(scratch, problem, partition, copies);
                   });
  };
  const auto make = [&] {
    std::vector<AxisReducePartition> partitions = parted(problem, builder.machine().tiles);
    partitions.insert(partitions.begin(), unparted().partition);
    return fastest_of(std::move(partitions), evaluate);
  };
  constexpr size_t kMost = 256;
  static base::Memo<MapKey, AxisReducePlan> plans(kMost);
  return plans.get(key_of(builder, operation, operands), make);
}

StepId build(const Builder& builder, const AxisReduceProblem& problem, const AxisReducePlan& plan,
             const std::vector<Operand>& operands) {
  return build_as(builder, problem, plan.partition, operands);
}

MapOperation operation_of(const NeighbourSumProblem& p) {
  require_float(p.from, "a sum of neighbouring rows");
  require_float(p.to, "a sum of neighbouring rows");
  MapOperation operation{.codelet = &kernels::reduce_neighbours_codelet,
                         .phase = program::Phase::reduce,
                         .rows = p.rows,
                         .cols = p.cols};
  operation.operands = {{"in", p.from, Role::input, p.rows * p.neighbours, p.cols},
                        {"out", p.to, Role::output, p.rows, p.cols}};
  operation.operands[0].rows_per_row = p.neighbours;
  return operation;
}

}  // namespace tessera::ops
