// The kernels of Y = W·X and dX = Wᵀ·dY, as seen by the planner and builder of products.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "kernels/host/block_sparse/codelet.h"
#include "kernels/host/block_sparse/cost.h"
#include "kernels/host/element_sparse/codelet.h"
#include "kernels/host/element_sparse/cost.h"
#include "kernels/map/gather/codelet.h"
#include "ops/sparse/host/spmm.h"
#include "ops/split.h"
#include "program/cycles.h"

namespace tessera::ops {

/// The layout of a caller's matrix, without its elements.
template <class T>
MatrixView<T> placed(Layout layout, uint32_t rows, uint32_t cols) {
  return layout == Layout::row_major ? row_major<T>(nullptr, cols) : column_major<T>(nullptr, rows);
}

/// A product, and the layouts of the arrays that will be bound to its dense matrices.
struct HostProblem : ProductProblem {
  HostLayouts layouts;

  HostProblem(const ProductProblem& problem, const HostLayouts& of_arrays)
      : ProductProblem(problem), layouts(of_arrays) {}

  /// Layouts of the dense matrix that a product with W or its transpose reads, and of the one that it writes.
  Layout read() const { return product == ProductKind::input_gradient ? layouts.y : layouts.x; }
  Layout written() const { return product == ProductKind::input_gradient ? layouts.x : layouts.y; }
};

/// The images in which a window's positions are the columns of X; empty, if X is a matrix.
inline kernels::Seen seen_of(const HostProblem& problem, uint32_t k) {
  if (!problem.layouts.window) return {};
  const kernels::Window& w = *problem.layouts.window;
  return {w, k / w.taps(), problem.n / w.out_positions() * w.positions(), 0};
}

/// Splits columns into parts of nearly equal width that begin at cache lines of Y, so that no two tiles share
/// one.
std::vector<uint32_t> split_columns(uint32_t n, uint32_t parts);

/// Common parts of both families' slices, for their costs.
template <class Slice, class Family>
void describe_slice(Slice& slice, const Family& family, const typename Family::Schedule& schedule,
                    const HostProblem& problem, const program::Box& units) {
  slice.weight = family.view();
  slice.col_begin = units.col;
  slice.col_end = static_cast<uint32_t>(units.col_end());
  slice.schedule = schedule;
  slice.seen = seen_of(problem, family.cols());
  slice.x = slice.seen ? placed<const float>(problem.read(), slice.seen.channels, slice.seen.positions)
                       : placed<const float>(problem.read(), family.cols(), problem.n);
  slice.y = placed<float>(problem.written(), family.rows(), problem.n);
}

/// The planner's and builder's view of the block kernels.
struct Blocks {
  using Schedule = kernels::BlockSchedule;

  const sparse::PackedBlocks& weight;
  bool transpose = false;

  uint32_t rows() const { return transpose ? weight.cols() : weight.rows(); }
  uint32_t cols() const { return transpose ? weight.rows() : weight.cols(); }
  kernels::BlockWeight view() const { return kernels::view_of(weight, transpose); }

  const program::Codelet& codelet(const ProductProblem& problem) const {
    return problem.uses_beta ? kernels::block_spmm_codelet : kernels::block_spmm_assign_codelet;
  }

  template <class Visit>
  static void visit_knobs(Schedule& schedule, const Visit& visit) {
    kernels::visit_block_knobs(schedule, visit);
  }

  std::vector<Schedule> candidates(const HostProblem& problem, const machine::Machine& m) const {
    return kernels::block_candidates({.m = rows(),
                                      .k = cols(),
                                      .n = problem.n,
                                      .block_size = weight.block_size(),
                                      .non_zeros = weight.non_zeros(),
                                      .type = weight.type(),
                                      .threads = m.tiles,
                                      .x_column_major = problem.read() == Layout::column_major,
                                      .y_column_major = problem.written() == Layout::column_major,
                                      .sees_images = problem.layouts.window.has_value(),
                                      .can_shift = can_shift(problem),
                                      .is_bf16 = problem.activations == Type::bf16},
                                     m.figures);
  }

  bool can_shift(const HostProblem& problem) const {
    const kernels::Seen seen = seen_of(problem, cols());
    return seen && problem.read() == Layout::row_major &&
           kernels::can_shift(seen, weight.block_size(), seen.positions);
  }

  std::vector<uint32_t> row_parts(uint32_t parts) const {
    const sparse::BlockIndex& index = transpose ? weight.transposed_index() : weight.index();
    if (weight.is_dynamic()) return split_evenly(index.rows(), parts);
    return split_rows(index.row_begin, index.rows(), parts);
  }

  static std::vector<uint32_t> col_parts(const Schedule& schedule, const HostProblem& problem) {
    return split_columns(problem.n, schedule.col_parts);
  }

  uint32_t first_row(uint32_t unit) const { return std::min(unit * weight.block_size(), rows()); }

  program::PhaseTimes cost(const Schedule& schedule, const HostProblem& problem, program::Box units,
                           const machine::Machine& m) const {
    kernels::BlockSlice slice;
    describe_slice(slice, *this, schedule, problem, units);
    if (weight.is_dynamic()) slice.weight.row_begin = nullptr;
    slice.weight.capacity = static_cast<uint32_t>(weight.capacity());
    slice.block_row_begin = units.row;
    slice.block_row_end = static_cast<uint32_t>(units.row_end());
    return kernels::block_cost(slice, m.figures);
  }

  /// The product is the only step.
  program::PhaseTimes other_steps(const Schedule&, uint32_t, const machine::Machine&) const { return {}; }
  uint64_t bytes_between_steps(const Schedule&, uint32_t) const { return 0; }

  size_t scratch_floats(const Schedule& schedule, const HostProblem&, const program::Box& units) const {
    return kernels::block_scratch_floats(schedule, cols(), weight.block_size(), units.cols, transpose);
  }
};

/// The planner's and builder's view of the element kernels. A transposed product has its own index, and first
/// gathers the values into the order of that index.
struct Elements {
  using Schedule = kernels::ElementSchedule;

  const sparse::PackedElements& weight;
  bool transpose = false;

  const sparse::ElementIndex& index() const { return transpose ? weight.transposed().index : weight.index(); }
  uint32_t rows() const { return index().rows; }
  uint32_t cols() const { return index().cols; }
  kernels::ElementWeight view() const { return kernels::view_of(index(), weight.type(), nullptr); }
  /// Rows of kRowGroupLanes that the values take in the product's order.
  uint32_t value_rows() const {
    const uint64_t places = transpose ? weight.transposed().source.size() : weight.places();
    return static_cast<uint32_t>(places / sparse::kRowGroupLanes);
  }

  const program::Codelet& codelet(const ProductProblem& problem) const {
    return problem.uses_beta ? kernels::element_spmm_codelet : kernels::element_spmm_assign_codelet;
  }

  template <class Visit>
  static void visit_knobs(Schedule& schedule, const Visit& visit) {
    kernels::visit_element_knobs(schedule, visit);
  }

  std::vector<Schedule> candidates(const HostProblem& problem, const machine::Machine& m) const {
    return kernels::element_candidates(view(), problem.n, m.tiles, m.figures);
  }

  std::vector<uint32_t> row_parts(uint32_t parts) const {
    const uint32_t chunks = index().chunks();
    if (weight.is_dynamic()) return split_evenly(chunks, parts);
    std::vector<uint64_t> places_before;
    for (uint64_t chunk = 0; chunk <= chunks; ++chunk)
      places_before.push_back(index().blocks[chunk * index().k_blocks()].value);
    return split_rows(places_before, chunks, parts);
  }

  static std::vector<uint32_t> col_parts(const Schedule& schedule, const HostProblem& problem) {
    return split_columns(problem.n, schedule.col_parts);
  }

  uint32_t first_row(uint32_t unit) const { return index().chunk_begin[unit]; }

  /// Number of non-zeros that the cost assumes for a part if the pattern may change: its even fraction of the
  /// capacity; 0: the cost counts the non-zeros.
  uint64_t capacity_of(uint32_t chunk_begin, uint32_t chunk_end) const {
    if (!weight.is_dynamic() || rows() == 0) return 0;
    return weight.capacity() * (first_row(chunk_end) - first_row(chunk_begin)) / rows();
  }

  program::PhaseTimes cost(const Schedule& schedule, const HostProblem& problem, program::Box units,
                           const machine::Machine& m) const {
    kernels::ElementSlice slice;
    describe_slice(slice, *this, schedule, problem, units);
    slice.chunk_begin = units.row;
    slice.chunk_end = static_cast<uint32_t>(units.row_end());
    if (weight.is_dynamic()) slice.weight.blocks = nullptr;
    slice.weight.capacity = capacity_of(slice.chunk_begin, slice.chunk_end);
    return kernels::element_cost(slice, m.figures);
  }

  /// Rows of values that each tile gathers.
  std::vector<uint32_t> gather_parts(uint32_t tiles) const { return split_evenly(value_rows(), tiles); }

  /// Cycles for gathering the values on `tiles` tiles.
  program::PhaseTimes other_steps(const Schedule&, uint32_t tiles, const machine::Machine& m) const {
    if (!transpose) return {};
    const std::vector<uint32_t> parts = gather_parts(tiles);
    uint32_t most = 0;
    for (size_t p = 0; p + 1 < parts.size(); ++p) most = std::max(most, parts[p + 1] - parts[p]);
    const auto rows_of = [](Type type, uint32_t rows) {
      return program::FieldView{nullptr, type, rows, sparse::kRowGroupLanes, sparse::kRowGroupLanes, 1};
    };
    const std::array fields = {rows_of(weight.type(), value_rows()), rows_of(Type::u32, most),
                               rows_of(weight.type(), most)};
    program::PhaseTimes cycles = kernels::gather_elements_codelet.cost({fields, {}}, m);
    cycles[program::Phase::sync] += program::sync_cycles(m, parts.size() - 1);
    return cycles;
  }

  /// Bytes of the gathered values.
  uint64_t bytes_between_steps(const Schedule&, uint32_t) const {
    return transpose ? uint64_t{value_rows()} * sparse::kRowGroupLanes * size_of(weight.type()) : 0;
  }

  size_t scratch_floats(const Schedule& schedule, const HostProblem& problem,
                        const program::Box& units) const {
    return kernels::element_scratch_floats(schedule, view(), units.cols, seen_of(problem, cols()));
  }
};

}  // namespace tessera::ops
