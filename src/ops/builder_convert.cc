// Operands in other layouts.
#include <tessera/error.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/map/gather/codelet.h"
#include "ops/blocks.h"
#include "ops/builder.h"
#include "ops/map/fill.h"
#include "ops/owners.h"
#include "ops/split.h"
#include "program/cycles.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::MappedBox;
using program::Role;

/// The copies the other way.
program::CopyGroup reversed(program::CopyGroup group) {
  std::swap(group.from, group.to);
  std::swap(group.source, group.target);
  return group;
}

// Panels are converted by way of the transpose with all their rows, as each panel has only a few columns of
// it.

OperandLayout transpose_of(const PanelLayout& panels) {
  return {.rows = panels.k, .cols = panels.m, .transposed = true};
}

Operand columns_of(const Builder& builder, const PanelLayout& panels, const Operand& like) {
  return builder.temporary(builder.variable_name(like) + ".columns", builder.type_of(like), panels.k,
                           panels.rows() * PanelLayout::kRows, {}, builder.purpose_of(like));
}

program::CopyGroup panels_to_columns(const PanelLayout& layout, const Operand& panels,
                                     const Operand& columns) {
  constexpr uint32_t kPanel = PanelLayout::kRows;
  const Box run{0, 1, 0, kPanel};
  return {panels.variable,
          columns.variable,
          layout.rows() * layout.k,
          BoxSeries::grid(panels.inside(run), {1, 0}, layout.k, {0, kPanel}),
          BoxSeries::grid(columns.inside(run), {0, kPanel}, layout.k, {1, 0}),
          {},
          {},
          {}};
}

Operand from_panels(const Builder& builder, const Operand& operand, const PanelLayout& has,
                    const OperandLayout& wants, std::vector<program::StepId>& steps) {
  Operand columns = columns_of(builder, has, operand);
  steps.push_back(builder.copy({"panels to columns", {panels_to_columns(has, operand, columns)}}));
  columns.box.cols = has.m;
  return builder.bring(columns, transpose_of(has), wants, steps);
}

Operand to_panels(const Builder& builder, const Operand& operand, const OperandLayout& has,
                  const PanelLayout& wants, std::vector<program::StepId>& steps) {
  const Operand columns = columns_of(builder, wants, operand);
  const Type type = builder.type_of(operand);
  if (columns.cols() != wants.m)
    steps.push_back(add(builder, FillProblem{type, columns.rows(), columns.cols(), 0}, {columns}));
  const Operand rows{columns.variable, {0, wants.k, 0, wants.m}};
  if (has.transposed && !has.parts)
    builder.send(operand, rows, steps);
  else
    builder.convert(operand, has, rows, transpose_of(wants), steps);
  const Operand panels = builder.temporary(builder.variable_name(operand) + ".panels", type, wants.rows(),
                                           wants.cols(), {}, builder.purpose_of(operand));
  steps.push_back(builder.copy({"columns to panels", {reversed(panels_to_columns(wants, panels, columns))}}));
  return panels;
}

std::vector<MappedBox> transposed(std::vector<MappedBox> mapping) {
  for (MappedBox& mapped : mapping) mapped.box = program::transpose(mapped.box);
  return mapping;
}

/// Where an operand in parts lies, in boxes of its matrix. None on a host, without parts, or if some lie on
/// other tiles.
std::vector<MappedBox> boxes_where_parted(const Builder& builder, const Operand& operand,
                                          const OperandLayout& layout) {
  if (builder.is_host() || !layout.parts || !builder.holds(operand)) return {};
  return boxes_of_parts(*layout.parts, builder.mapping_of(operand));
}

/// The same, if copies between the mapped transpose and these boxes take no more transfers than by way of
/// whole rows; otherwise none.
std::vector<MappedBox> boxes_to_transpose(const Builder& builder, const Operand& parted,
                                          const OperandLayout& layout,
                                          const std::vector<MappedBox>& transpose) {
  std::vector<MappedBox> boxes = boxes_where_parted(builder, parted, layout);
  if (boxes.empty()) return {};
  const uint32_t rows = layout.parts->rows(), cols = layout.parts->cols(), tiles = builder.machine().tiles;
  const std::vector<MappedBox> other = transposed(transpose),
                               in_rows = program::map_linearly(rows, cols, tiles),
                               in_blocks = blocks_on_tiles({parted.variable, {0, rows, 0, cols}}, tiles);
  const uint64_t by_blocks = most_transfers(other, in_blocks) + most_transfers(in_blocks, in_rows);
  const uint64_t by_rows =
      std::min(most_transfers(other, in_rows), by_blocks) + most_transfers(in_rows, boxes);
  if (most_transfers(other, boxes) > by_rows) boxes.clear();
  return boxes;
}

}  // namespace

Operand Builder::bring(const Operand& operand, const OperandLayout& has, const OperandLayout& wants,
                       std::vector<program::StepId>& steps) const {
  if (has.has_order_of(wants)) return operand;
  if (has.panels) return from_panels(*this, operand, *has.panels, wants, steps);
  if (wants.panels) return to_panels(*this, operand, has, *wants.panels, steps);
  const Operand brought =
      add(variable_name(operand) + ".brought", Role::temporary, type_of(operand), wants, purpose_of(operand));
  convert(operand, has, brought, wants, steps);
  return brought;
}

void Builder::convert(const Operand& from, const OperandLayout& has, const Operand& to,
                      const OperandLayout& wants, std::vector<program::StepId>& steps) const {
  if (has.panels || wants.panels) return send(bring(from, has, wants, steps), to, steps);
  if (has.transposed == wants.transposed) {
    steps.push_back(copy(conversion(from, has, to, wants)));
    return;
  }
  if (!has.blocks.empty() || !wants.blocks.empty())
    throw UsageError(
        "packed values cannot be converted to their transpose: plan for the layout that they have");
  if (!wants.parts && !boxes_to_transpose(*this, from, has, mapping_of(to)).empty())
    return send(transposed_in_boxes(from, has, steps).value(), to, steps);
  const Operand source = plain(from, has, {});
  if (source != from) steps.push_back(copy(conversion(from, has, source, has.row_by_row())));
  const std::vector<MappedBox> boxes = boxes_to_transpose(*this, to, wants, mapping_of(source));
  const Operand target = plain(to, wants, boxes);
  if (boxes.empty()) {
    transpose(source, target, steps);
    if (target != to) steps.push_back(copy(conversion(target, wants.row_by_row(), to, wants)));
    return;
  }
  transpose_boxes(source, target, steps);
  // In the order of the parts, what goes from a box to a part comes together, as one transfer.
  program::CopySet copies = conversion(to, wants, target, wants.row_by_row());
  for (program::CopyGroup& group : copies.groups) group = reversed(std::move(group));
  steps.push_back(copy(std::move(copies)));
}

std::optional<Operand> Builder::in_boxes(const Operand& operand, const OperandLayout& has,
                                         std::vector<program::StepId>& steps) const {
  std::vector<MappedBox> boxes = boxes_where_parted(*this, operand, has);
  if (boxes.empty()) return {};
  const Operand matrix = plain(operand, has, std::move(boxes));
  steps.push_back(copy(conversion(operand, has, matrix, has.row_by_row())));
  return matrix;
}

std::optional<Operand> Builder::transposed_in_boxes(const Operand& operand, const OperandLayout& has,
                                                    std::vector<program::StepId>& steps) const {
  const std::optional<Operand> matrix = in_boxes(operand, has, steps);
  if (!matrix) return {};
  const Operand result = temporary(variable_name(operand) + ".transposed", type_of(operand), matrix->cols(),
                                   matrix->rows(), transposed(mapping_of(*matrix)), purpose_of(operand));
  transpose_boxes(*matrix, result, steps);
  return result;
}

Operand Builder::plain(const Operand& operand, const OperandLayout& layout,
                       std::vector<MappedBox> mapping) const {
  if (!layout.parts) return operand;
  const OperandLayout rows = layout.row_by_row();
  return temporary(variable_name(operand) + ".rows", type_of(operand), rows.rows, rows.cols,
                   std::move(mapping), purpose_of(operand));
}

void Builder::transpose(const Operand& from, const Operand& to, std::vector<program::StepId>& steps) const {
  if (to.box.empty()) return;
  if (!is_host() && !holds(to)) {
    const Operand local = like(to, variable_name(to) + ".transposed", {}, purpose_of(to));
    transpose(from, local, steps);
    return send(local, to, steps);
  }
  if (scatters(to)) {
    const Operand blocks =
        like(to, variable_name(to) + ".blocks", blocks_on_tiles(to, machine_.tiles), purpose_of(to));
    transpose(from, blocks, steps);
    return send(blocks, to, steps);
  }
  transpose_boxes(from, to, steps);
}

void Builder::transpose_boxes(const Operand& from, const Operand& to,
                              std::vector<program::StepId>& steps) const {
  std::vector<MappedBox> owners = is_host() ? slices_of_threads(to) : mapping_of(to);
  std::ranges::stable_sort(owners, {}, &MappedBox::tile);
  std::vector<Box> read = boxes_of(transposed(owners));
  steps.push_back(execute({"transpose", program::Phase::rearrange,
                           groups_of_owners(owners, kernels::transpose_codelet,
                                            {{from, std::move(read)}, {to, boxes_of(owners)}}, {})}));
}

bool Builder::scatters(const Operand& to) const {
  if (is_host()) return false;
  uint64_t transfers = 0;
  for (const MappedBox& owned : mapping_of(to)) transfers += owned.box.cols;
  const std::vector<MappedBox> blocks = blocks_on_tiles(to, machine_.tiles);
  const uint64_t of_block = uint64_t{blocks.front().box.rows} + blocks.front().box.cols;
  return transfers > kMostTransfers * machine_.tiles && transfers > 2 * of_block * blocks.size();
}

std::vector<MappedBox> Builder::slices_of_threads(const Operand& operand) const {
  const uint64_t bytes = operand.box.elements() * size_of(type_of(operand));
  const auto parts =
      static_cast<uint32_t>(std::clamp<uint64_t>(bytes / program::kHostCopyPartBytes, 1, machine_.tiles));
  const std::vector<uint32_t> first = split_evenly(operand.rows(), parts);
  std::vector<MappedBox> slices;
  for (uint32_t tile = 0; tile + 1 < first.size(); ++tile)
    slices.push_back({{first[tile], first[tile + 1] - first[tile], 0, operand.cols()}, tile});
  return slices;
}

}  // namespace tessera::ops
