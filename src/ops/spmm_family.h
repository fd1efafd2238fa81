// The two families of product kernels, as the planner and the builder of products see them.
#pragma once

#include <tessera/error.h>

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
template <class Share, class Family>
void describe_share(Share& share, const Family& family, const typename Family::Cut& cut,
                    const SpmmProblem& problem, const program::Box& units) {
  share.weight = family.view();
  share.col_begin = units.col;
  share.col_end = static_cast<uint32_t>(units.col_end());
  share.cut = cut;
  share.x = placed<const float>(problem.x_layout, family.cols(), problem.n);
  share.y = placed<float>(problem.y_layout, family.rows(), problem.n);
}

/// What the planner and the builder need to know of the block kernels.
struct Blocks {
  using Cut = kernels::BlockCut;

  const sparse::PackedBlocks& weight;
  bool transpose = false;

  uint32_t rows() const { return transpose ? weight.cols() : weight.rows(); }
  uint32_t cols() const { return transpose ? weight.rows() : weight.cols(); }
  kernels::BlockWeight view() const { return kernels::view_of(weight, transpose); }

  static constexpr const program::Codelet& codelet() { return kernels::block_spmm_codelet; }

  template <class Visit>
  static void visit_knobs(Cut& cut, const Visit& visit) {
    kernels::visit_block_knobs(cut, visit);
  }

  std::vector<Cut> candidates(const SpmmProblem& problem, const machine::Machine& m) const {
    return kernels::block_candidates({.m = rows(),
                                      .k = cols(),
                                      .n = problem.n,
                                      .block_size = weight.block_size(),
                                      .non_zeros = weight.non_zeros(),
                                      .type = weight.type(),
                                      .threads = m.tiles,
                                      .x_column_major = problem.x_layout == Layout::column_major,
                                      .y_column_major = problem.y_layout == Layout::column_major,
                                      .transposed = transpose},
                                     m.figures);
  }

  void check(const Cut& cut) const {
    if (transpose && cut.kernel == kernels::BlockCut::Kernel::narrow)
      throw UsageError("kernel=1: the narrow kernel has no transposed form; use kernel=0");
  }

  std::vector<uint32_t> row_parts(uint32_t parts) const {
    const sparse::BlockIndex& index = transpose ? weight.transposed_index() : weight.index();
    if (weight.is_dynamic()) return cut_evenly(index.rows(), parts);
    return cut_rows(index.row_begin, index.rows(), parts);
  }

  uint32_t first_row(uint32_t unit) const { return std::min(unit * weight.block_size(), rows()); }

  program::PhaseTimes cost(const Cut& cut, const SpmmProblem& problem, program::Box units,
                           const machine::Machine& m) const {
    kernels::BlockShare share;
    describe_share(share, *this, cut, problem, units);
    if (weight.is_dynamic()) share.weight.row_begin = nullptr;
    share.weight.capacity = static_cast<uint32_t>(weight.capacity());
    share.block_row_begin = units.row;
    share.block_row_end = static_cast<uint32_t>(units.row_end());
    return kernels::block_cost(share, m.figures);
  }

  size_t scratch_floats(const Cut& cut, uint32_t cols) const {
    return kernels::block_scratch_floats(cut, this->cols(), weight.block_size(), cols);
  }
};

/// The same of the element kernels.
struct Elements {
  using Cut = kernels::ElementCut;

  const sparse::PackedElements& weight;

  uint32_t rows() const { return weight.rows(); }
  uint32_t cols() const { return weight.cols(); }
  kernels::ElementWeight view() const { return kernels::view_of(weight); }

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
    describe_share(share, *this, cut, problem, units);
    share.chunk_begin = units.row;
    share.chunk_end = static_cast<uint32_t>(units.row_end());
    return kernels::element_cost(share, m.figures);
  }

  size_t scratch_floats(const Cut& cut, uint32_t cols) const {
    return kernels::element_scratch_floats(cut, kernels::view_of(weight), cols);
  }
};

/// Calls visit with the family of a weight, or of its transpose.
template <class Visit>
auto with_family(const PackedWeight& weight, bool transpose, const Visit& visit) {
  if (const auto* blocks = std::get_if<sparse::PackedBlocks>(&weight.form)) return visit(Blocks{*blocks, transpose});
  if (transpose) throw UsageError("a weight of single elements has no transposed product");
  return visit(Elements{std::get<sparse::PackedElements>(weight.form)});
}

}  // namespace tessera::ops
