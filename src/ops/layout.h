// Layouts of operands: the order of elements, the shape of the variable, and its mapping.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/common/element_order.h"
#include "ops/operand.h"
#include "ops/parted_matrix.h"
#include "program/program.h"
#include "sparse/panels/panel_layout.h"

namespace tessera::ops {

using sparse::PanelLayout;

/// Layout of an operand. Tiles are numbered from 0. Without parts, panels and blocks a matrix lies row by
/// row.
struct OperandLayout {
  uint32_t rows = 0;  ///< rows of the variable
  uint32_t cols = 0;
  std::vector<program::MappedBox> mapping = {};
  std::optional<PartedMatrix> parts = {};  ///< the matrix is stored part by part
  bool transposed = false;                 ///< the transpose of the matrix is stored
  std::vector<uint64_t> blocks = {};       ///< packed values: row i is block blocks[i] of the pattern
  std::optional<PanelLayout> panels = {};  ///< the matrix is stored in panels, the last one padded with 0

  bool operator==(const OperandLayout&) const = default;
  /// Whether elements are stored in the same order, whatever the mapping.
  bool has_order_of(const OperandLayout& other) const {
    return rows == other.rows && cols == other.cols && parts == other.parts &&
           transposed == other.transposed && blocks == other.blocks && panels == other.panels;
  }

  /// The layout of the same matrix, or its transpose, row by row, without a mapping.
  OperandLayout row_by_row() const;

  /// Which element of the matrix each stored one is; none: there is no formula.
  std::optional<kernels::ElementOrder> order() const;

  /// Converts a row-major matrix to the elements of an operand with this layout, and back.
  std::vector<float> store(std::span<const float> matrix) const;
  void load(std::span<const float> stored, std::span<float> matrix) const;
};

/// Layout of a matrix that is stored row by row.
OperandLayout matrix_layout(uint32_t rows, uint32_t cols, std::vector<program::MappedBox> mapping);
/// Layout of a matrix that is stored part by part.
OperandLayout parted_layout(PartedMatrix parts, std::vector<program::MappedBox> mapping);

/// Layout of a matrix in panels.
OperandLayout panel_layout(const PanelLayout& panels);

/// The copies that convert an operand from one layout to another, where both store the matrix or both its
/// transpose, neither in panels.
program::CopySet conversion(const Operand& from, const OperandLayout& has, const Operand& to,
                            const OperandLayout& wants);

/// The layouts of a product's operands that its plan requires.
struct ProductLayouts {
  OperandLayout values = {};
  OperandLayout x = {};
  OperandLayout y = {};
  OperandLayout metadata = {};  ///< for a dynamic W
  OperandLayout bias = {};
};

/// Layouts that an operand may have; if there are none, the planner chooses.
struct LayoutChoices {
  std::vector<OperandLayout> values = {};
  std::vector<OperandLayout> x = {};
  std::vector<OperandLayout> y = {};

  bool operator==(const LayoutChoices&) const = default;
};

}  // namespace tessera::ops
