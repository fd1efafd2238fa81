// The families of product kernels of a host, as seen by the planner and builder of products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/common/planes.h"
#include "kernels/host/sddmm/codelet.h"
#include "kernels/host/sddmm/cost.h"
#include "ops/map/elementwise.h"
#include "ops/map/fill.h"
#include "ops/sparse/host/spmm_family.h"

namespace tessera::ops {

/// Whether an SDDMM has slices along its columns: not if it has several along the rows.
template <class Schedule>
bool divides_columns(const Schedule& schedule) {
  return schedule.row_parts == 1 && schedule.col_parts > 1;
}

/// Slices of an SDDMM along its columns, of images in whole pieces of planes.
template <class Schedule>
std::vector<uint32_t> split_sddmm(const Schedule& schedule, const HostProblem& problem, uint32_t k) {
  if (!divides_columns(schedule)) return {0, problem.n};
  const kernels::Seen seen = seen_of(problem, k);
  if (!seen) return split_columns(problem.n, schedule.col_parts);
  return split_evenly(problem.n, schedule.col_parts, kernels::Planes(seen).positions_together());
}

/// The results of slices along the columns, rows × cols each, which are added one after another. Few columns
/// have fewer slices than their schedule.
struct SddmmParts {
  uint32_t count, rows, cols;

  template <class Schedule>
  SddmmParts(const Schedule& schedule, uint32_t tiles, uint64_t rows_of_dw, uint32_t cols_of_dw)
      : count(divides_columns(schedule) ? std::max(tiles, 1U) : 1),
        rows(static_cast<uint32_t>(rows_of_dw)),
        cols(cols_of_dw) {}

  BinaryProblem addition() const {
    return {.op = kernels::Binary::add, .type = Type::f32, .rows = rows, .cols = cols};
  }
  FillProblem clearing() const { return {Type::f32, count * rows, cols, 0}; }
  uint64_t bytes() const { return count > 1 ? uint64_t{count} * rows * cols * sizeof(float) : 0; }
  /// Cycles for adding them, and for clearing them first.
  program::PhaseTimes cycles(bool clears, const machine::Machine& m) const {
    if (count == 1) return {};
    program::PhaseTimes seconds = plan(addition(), m).chosen.seconds.scaled(count - 1);
    if (clears) seconds += plan(clearing(), m).chosen.seconds;
    return seconds.scaled(m.clock_hz);
  }
};

/// The operands of an SDDMM for some of the columns.
inline kernels::SddmmOperands operands_of(const HostProblem& problem, uint32_t m, uint32_t k,
                                          const program::Box& units) {
  kernels::SddmmOperands o;
  o.n = units.cols;
  o.dy = placed<const float>(problem.layouts.y, m, problem.n);
  o.seen = seen_of(problem, k);
  o.seen.first = units.col;
  o.x = o.seen ? placed<const float>(problem.layouts.x, o.seen.channels, o.seen.positions)
               : placed<const float>(problem.layouts.x, k, problem.n);
  return o;
}

/// The planner's and builder's view of the block kernel.
struct BlockSddmm {
  using Schedule = kernels::BlockSddmmSchedule;

  const sparse::PackedBlocks& weight;

  /// A dynamic weight has free slots whose dW is never written, so its dW is not written completely.
  const program::Codelet& codelet(const ProductProblem& problem) const {
    return problem.uses_beta ? kernels::block_sddmm_codelet : part_codelet();
  }
  /// The codelet of a part that is added to others.
  const program::Codelet& part_codelet() const {
    return weight.is_dynamic() ? kernels::block_sddmm_codelet : kernels::block_sddmm_assign_codelet;
  }

  template <class Visit>
  static void visit_knobs(Schedule& schedule, const Visit& visit) {
    kernels::visit_block_sddmm_knobs(schedule, visit);
  }

  std::vector<Schedule> candidates(const HostProblem& problem, const machine::Machine& m) const {
    return kernels::block_sddmm_candidates(kernels::view_of(weight), problem.n, m.tiles, m.figures);
  }

  std::vector<uint32_t> row_parts(uint32_t parts) const { return Blocks{weight}.row_parts(parts); }
  std::vector<uint32_t> col_parts(const Schedule& schedule, const HostProblem& problem) const {
    return split_sddmm(schedule, problem, weight.cols());
  }
  uint32_t first_row(uint32_t unit) const { return std::min(unit * weight.block_size(), weight.rows()); }

  program::PhaseTimes cost(const Schedule& schedule, const HostProblem& problem, const program::Box& units,
                           const machine::Machine& m) const {
    kernels::BlockSddmmSlice slice;
    slice.weight = kernels::view_of(weight);
    if (weight.is_dynamic()) slice.weight.row_begin = nullptr;
    slice.weight.capacity = static_cast<uint32_t>(weight.capacity());
    slice.block_row_begin = units.row;
    slice.block_row_end = static_cast<uint32_t>(units.row_end());
    slice.operands = operands_of(problem, weight.rows(), weight.cols(), units);
    slice.schedule = schedule;
    return kernels::block_sddmm_cost(slice, m.figures);
  }

  SddmmParts parts(const Schedule& schedule, uint32_t tiles) const {
    return {schedule, tiles, weight.capacity(), weight.order().block_values()};
  }
  program::PhaseTimes other_steps(const Schedule& schedule, uint32_t tiles, const machine::Machine& m) const {
    return parts(schedule, tiles).cycles(weight.is_dynamic(), m);
  }
  uint64_t bytes_between_steps(const Schedule& schedule, uint32_t tiles) const {
    return parts(schedule, tiles).bytes();
  }

  size_t scratch_floats(const Schedule& schedule, const HostProblem& problem,
                        const program::Box& units) const {
    return kernels::block_sddmm_scratch(
        schedule, kernels::view_of(weight), units.rows, units.cols,
        {problem.layouts.x == Layout::column_major, problem.layouts.y == Layout::column_major,
         problem.layouts.window.has_value()});
  }
};

/// The planner's and builder's view of the single-element kernel.
struct ElementSddmm {
  using Schedule = kernels::ElementSddmmSchedule;

  const sparse::PackedElements& weight;

  const program::Codelet& codelet(const ProductProblem& problem) const {
    return problem.uses_beta ? kernels::element_sddmm_codelet : part_codelet();
  }
  const program::Codelet& part_codelet() const { return kernels::element_sddmm_assign_codelet; }

  template <class Visit>
  static void visit_knobs(Schedule& schedule, const Visit& visit) {
    kernels::visit_element_sddmm_knobs(schedule, visit);
  }

  std::vector<Schedule> candidates(const HostProblem& problem, const machine::Machine& m) const {
    return kernels::element_sddmm_candidates(kernels::view_of(weight), problem.n, m.tiles, m.figures);
  }

  std::vector<uint32_t> row_parts(uint32_t parts) const { return Elements{weight}.row_parts(parts); }
  std::vector<uint32_t> col_parts(const Schedule& schedule, const HostProblem& problem) const {
    return split_sddmm(schedule, problem, weight.cols());
  }
  uint32_t first_row(uint32_t unit) const { return Elements{weight}.first_row(unit); }
  uint64_t capacity_of(uint32_t begin, uint32_t end) const {
    return Elements{weight}.capacity_of(begin, end);
  }

  program::PhaseTimes cost(const Schedule& schedule, const HostProblem& problem, const program::Box& units,
                           const machine::Machine& m) const {
    kernels::ElementSddmmSlice slice;
    slice.weight = kernels::view_of(weight);
    if (weight.is_dynamic()) slice.weight.blocks = nullptr;
    slice.weight.capacity = capacity_of(units.row, static_cast<uint32_t>(units.row_end()));
    slice.chunk_begin = units.row;
    slice.chunk_end = static_cast<uint32_t>(units.row_end());
    slice.operands = operands_of(problem, weight.rows(), weight.cols(), units);
    slice.schedule = schedule;
    return kernels::element_sddmm_cost(slice, m.figures);
  }

  SddmmParts parts(const Schedule& schedule, uint32_t tiles) const {
    return {schedule, tiles, weight.places() / sparse::kRowGroupLanes, sparse::kRowGroupLanes};
  }
  program::PhaseTimes other_steps(const Schedule& schedule, uint32_t tiles, const machine::Machine& m) const {
    return parts(schedule, tiles).cycles(false, m);
  }
  uint64_t bytes_between_steps(const Schedule& schedule, uint32_t tiles) const {
    return parts(schedule, tiles).bytes();
  }

  size_t scratch_floats(const Schedule& schedule, const HostProblem& problem,
                        const program::Box& units) const {
    return kernels::element_sddmm_scratch(schedule, kernels::view_of(weight), units.cols,
                                          seen_of(problem, weight.cols()));
  }
};

/// The product with a dense weight.
inline HostDenseProblem dense_problem(const sparse::PackedPanels& weight, const ProductProblem& problem,
                                      const HostLayouts& layouts) {
  return {.m = weight.rows(),
          .k = weight.cols(),
          .n = problem.n,
          .product = problem.product,
          .weights = problem.product == ProductKind::sddmm ? Type::f32 : weight.type(),
          .activation = problem.activation,
          .bias = problem.bias,
          .adds = problem.uses_beta,
          .arrays = HostDenseProblem::Arrays{layouts.x, layouts.y}};
}

/// Calls visit with the family of a sparse weight's product.
template <class Visit>
auto with_family(const PackedWeight& weight, ProductKind product, const Visit& visit) {
  const bool transpose = product == ProductKind::input_gradient;
  if (const auto* blocks = std::get_if<sparse::PackedBlocks>(&weight.form)) {
    if (product == ProductKind::sddmm) return visit(BlockSddmm{*blocks});
    return visit(Blocks{*blocks, transpose});
  }
  const auto& elements = std::get<sparse::PackedElements>(weight.form);
  if (product == ProductKind::sddmm) return visit(ElementSddmm{elements});
  return visit(Elements{elements, transpose});
}

}  // namespace tessera::ops
