// The two families of product kernels, as the planner and the builder of products see them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/block_sparse/codelet.h"
#include "kernels/block_sparse/cost.h"
#include "kernels/element_sparse/codelet.h"
#include "kernels/element_sparse/cost.h"
#include "ops/cut.h"
#include "ops/spmm.h"

namespace tessera::ops {

/// Where the elements of a matrix of the caller's lie, without the elements.
template <class T>
MatrixView<T> placed(Layout layout, uint32_t rows, uint32_t cols) {
  return layout == Layout::row_major ? row_major<T>(nullptr, cols) : column_major<T>(nullptr, rows);
}

/// What the shares of both families have in common, as their costs see it.
template <class Share, class Weight, class Cut>
void describe_share(Share& share, const Weight& weight, const Cut& cut, const SpmmProblem& problem,
                    const program::Box& units) {
  share.weight = kernels::view_of(weight);
  share.col_begin = units.col;
  share.col_end = static_cast<uint32_t>(units.col_end());
  share.cut = cut;
  share.x = placed<const float>(problem.x_layout, weight.cols(), problem.n);
  share.y = placed<float>(problem.y_layout, weight.rows(), problem.n);
}

/// What the planner and the builder need to know of the block kernels.
struct Blocks {
  using Cut = kernels::BlockCut;

  const sparse::PackedBlocks& weight;

  static constexpr const program::Codelet& codelet() { return kernels::block_spmm_codelet; }

  template <class Visit>
  static void visit_knobs(Cut& cut, const Visit& visit) {
    kernels::visit_block_knobs(cut, visit);
  }

  std::vector<Cut> candidates(const SpmmProblem& problem, const machine::Machine& m) const {
    return kernels::block_candidates({.m = weight.rows(),
                                      .k = weight.cols(),
                                      .n = problem.n,
                                      .block_size = weight.block_size(),
                                      .non_zeros = weight.non_zeros(),
                                      .type = weight.type(),
                                      .threads = m.tiles,
                                      .x_column_major = problem.x_layout == Layout::column_major,
                                      .y_column_major = problem.y_layout == Layout::column_major},
                                     m.figures);
  }

  std::vector<uint32_t> row_parts(uint32_t parts) const {
    return cut_rows(weight.row_begin(), weight.block_rows(), parts);
  }

  uint32_t first_row(uint32_t unit) const {
    return std::min(unit * weight.block_size(), weight.rows());
  }

  program::PhaseTimes cost(const Cut& cut, const SpmmProblem& problem, program::Box units,
                           const machine::Machine& m) const {
    kernels::BlockShare share;
    describe_share(share, weight, cut, problem, units);
    share.block_row_begin = units.row;
    share.block_row_end = static_cast<uint32_t>(units.row_end());
    return kernels::block_cost(share, m.figures);
  }

  size_t scratch_floats(const Cut& cut, uint32_t cols) const {
    return kernels::block_scratch_floats(cut, weight.cols(), weight.block_size(), cols);
  }
};

/// The same of the element kernels.
struct Elements {
  using Cut = kernels::ElementCut;

  const sparse::PackedElements& weight;

  static constexpr const program::Codelet& codelet() { return kernels::element_spmm_codelet; }

  template <class Visit>
  static void visit_knobs(Cut& cut, const Visit& visit) {
    kernels::visit_element_knobs(cut, visit);
  }

  std::vector<Cut> candidates(const SpmmProblem& problem, const machine::Machine& m) const {
    return kernels::element_candidates(kernels::view_of(weight), problem.n, m.tiles, m.figures);
  }

  std::vector<uint32_t> row_parts(uint32_t parts) const {
    return cut_rows(weight.chunk_nonzeros(), weight.chunks(), parts);
  }

  uint32_t first_row(uint32_t unit) const { return weight.chunk_begin()[unit]; }

  program::PhaseTimes cost(const Cut& cut, const SpmmProblem& problem, program::Box units,
                           const machine::Machine& m) const {
    kernels::ElementShare share;
    describe_share(share, weight, cut, problem, units);
    share.chunk_begin = units.row;
    share.chunk_end = static_cast<uint32_t>(units.row_end());
    return kernels::element_cost(share, m.figures);
  }

  size_t scratch_floats(const Cut& cut, uint32_t cols) const {
    return kernels::element_scratch_floats(cut, kernels::view_of(weight), cols);
  }
};

/// Calls visit with the family of a weight.
template <class Visit>
auto with_family(const PackedWeight& weight, const Visit& visit) {
  if (const auto* blocks = std::get_if<sparse::PackedBlocks>(&weight.form)) return visit(Blocks{*blocks});
  return visit(Elements{std::get<sparse::PackedElements>(weight.form)});
}

}  // namespace tessera::ops
