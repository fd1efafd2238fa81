#include "ops/layout.h"

#include <algorithm>
#include <cassert>
#include <memory>

namespace tessera::ops {
namespace {

/// The transpose of a row-major matrix of rows × cols.
std::vector<float> transposed_copy(std::span<const float> matrix, uint64_t rows, uint64_t cols) {
  std::vector<float> transposed(matrix.size());
  for (uint64_t r = 0; r < rows; ++r)
    for (uint64_t c = 0; c < cols; ++c) transposed[c * rows + r] = matrix[r * cols + c];
  return transposed;
}

using program::Box;
using program::BoxSeries;
using Run = PartedMatrix::Run;

/// Runs in matrix order.
std::vector<Run> sorted_runs(const OperandLayout& layout) {
  std::vector<Run> runs;
  if (layout.parts) {
    runs = layout.parts->runs();
    std::ranges::sort(runs, {}, &Run::first);
  } else {
    for (uint64_t row = 0; row < layout.rows; ++row)
      runs.push_back({row * layout.cols, row * layout.cols, layout.cols});
  }
  return runs;
}

/// A box of one row of the variable.
Box stored_box(const OperandLayout& layout, uint64_t stored, uint64_t count) {
  return {static_cast<uint32_t>(stored / layout.cols), 1, static_cast<uint32_t>(stored % layout.cols),
          static_cast<uint32_t>(count)};
}

/// Elements that are consecutive in two layouts, in neither beyond a row of its variable.
struct CommonRun {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t count = 0;
};

/// Runs that are consecutive in both layouts, in the storage order of `has`.
std::vector<CommonRun> common_runs(const OperandLayout& has, const OperandLayout& wants) {
  const std::vector<Run> source = sorted_runs(has);
  const std::vector<Run> target = sorted_runs(wants);
  std::vector<CommonRun> runs;
  for (size_t s = 0, t = 0; s < source.size() && t < target.size();) {
    const uint64_t first = std::max(source[s].first, target[t].first);
    const uint64_t source_end = source[s].first + source[s].count;
    const uint64_t target_end = target[t].first + target[t].count;
    const uint64_t end = std::min(source_end, target_end);
    runs.push_back({source[s].stored + first - source[s].first, target[t].stored + first - target[t].first,
                    end - first});
    s += source_end == end ? 1 : 0;
    t += target_end == end ? 1 : 0;
  }
  std::ranges::sort(runs, {}, &CommonRun::from);
  return runs;
}

/// Joins runs that follow each other in both layouts: rows of parts that are equally wide.
std::vector<CommonRun> joined(const std::vector<CommonRun>& runs, const OperandLayout& has,
                              const OperandLayout& wants) {
  std::vector<CommonRun> all;
  for (const CommonRun& run : runs) {
    CommonRun* last = all.empty() ? nullptr : &all.back();
    if (last != nullptr && last->from + last->count == run.from && last->to + last->count == run.to &&
        run.from % has.cols != 0 && run.to % wants.cols != 0)
      last->count += run.count;
    else
      all.push_back(run);
  }
  return all;
}

program::CopyGroup copy_runs(const Operand& from, const OperandLayout& has, const Operand& to,
                             const OperandLayout& wants) {
  std::vector<Box> sources;
  std::vector<Box> targets;
  for (const CommonRun& run : joined(common_runs(has, wants), has, wants)) {
    sources.push_back(stored_box(has, run.from, run.count));
    targets.push_back(stored_box(wants, run.to, run.count));
  }
  return copy_boxes(from, std::move(sources), to, std::move(targets));
}

/// Rows of packed values.
program::CopyGroup copy_blocks(const Operand& from, const OperandLayout& has, const Operand& to,
                               const OperandLayout& wants) {
  std::vector<uint32_t> row_of(has.blocks.size());
  for (uint32_t row = 0; row < has.blocks.size(); ++row) row_of[has.blocks[row]] = row;
  std::vector<uint32_t> rows;
  for (uint64_t block : wants.blocks) rows.push_back(row_of[block]);
  return gather_rows(from, to, rows);
}

}  // namespace

program::CopyGroup gather_rows(const Operand& from, const Operand& to, const std::vector<uint32_t>& rows) {
  auto positions = std::make_shared<std::vector<uint32_t>>(rows);
  if (from.box.row != 0)
    for (uint32_t& row : *positions) row += from.box.row;
  const auto count = static_cast<uint32_t>(rows.size());
  return {from.variable,
          to.variable,
          1,
          BoxSeries::same({0, count, from.box.col, to.cols()}),
          BoxSeries::same({to.box.row, count, to.box.col, to.cols()}),
          std::move(positions),
          {},
          {}};
}

program::CopySet conversion(const Operand& from, const OperandLayout& has, const Operand& to,
                            const OperandLayout& wants) {
  assert(has.transposed == wants.transposed && !has.panels && !wants.panels);
  return {"convert",
          {has.blocks.empty() ? copy_runs(from, has, to, wants) : copy_blocks(from, has, to, wants)}};
}

OperandLayout OperandLayout::row_by_row() const {
  if (panels) return {panels->m, panels->k};
  OperandLayout plain{parts ? parts->rows() : rows, parts ? parts->cols() : cols};
  plain.transposed = transposed;
  return plain;
}

std::optional<kernels::ElementOrder> OperandLayout::order() const {
  constexpr uint32_t kPanel = PanelLayout::kRows;
  if (parts) return {};
  if (panels) return kernels::ElementOrder{kPanel * panels->k, kPanel, 1, panels->k};
  return transposed ? kernels::ElementOrder::strided(1, rows) : kernels::ElementOrder::strided(cols, 1);
}

std::vector<float> OperandLayout::store(std::span<const float> matrix) const {
  if (panels) {
    std::vector<float> stored(panels->elements());
    panels->store(MatrixView<const float>{matrix.data(), panels->k, 1}, stored.data());
    return stored;
  }
  const uint32_t stored_rows = parts ? parts->rows() : rows;
  const uint32_t stored_cols = parts ? parts->cols() : cols;
  const std::vector<float> in_order = transposed ? transposed_copy(matrix, stored_cols, stored_rows)
                                                 : std::vector<float>(matrix.begin(), matrix.end());
  return parts ? parts->store(in_order) : in_order;
}

void OperandLayout::load(std::span<const float> stored, std::span<float> matrix) const {
  if (panels) return panels->load(stored.data(), MatrixView<float>{matrix.data(), panels->k, 1});
  const uint32_t stored_rows = parts ? parts->rows() : rows;
  const uint32_t stored_cols = parts ? parts->cols() : cols;
  std::vector<float> in_order(stored.begin(), stored.end());
  if (parts) {
    in_order.resize(matrix.size());
    parts->load(stored, in_order);
  }
  if (transposed) in_order = transposed_copy(in_order, stored_rows, stored_cols);
  std::ranges::copy(in_order, matrix.begin());
}

OperandLayout matrix_layout(uint32_t rows, uint32_t cols, std::vector<program::MappedBox> mapping) {
  return {rows, cols, std::move(mapping)};
}

OperandLayout panel_layout(const PanelLayout& panels) {
  return {.rows = panels.rows(), .cols = panels.cols(), .panels = panels};
}

OperandLayout parted_layout(PartedMatrix parts, std::vector<program::MappedBox> mapping) {
  OperandLayout layout{parts.slices(), parts.slice_elements(), std::move(mapping)};
  layout.parts = std::move(parts);
  return layout;
}

}  // namespace tessera::ops
