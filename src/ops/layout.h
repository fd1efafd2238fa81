// Layouts of operands: the order of their elements, the shape of their variable, and their mapping.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/operand.h"
#include "ops/parted_matrix.h"
#include "program/program.h"

namespace tessera::ops {

/// How an operand lies on tiles, which are numbered from 0.
struct OperandLayout {
  uint32_t rows = 0;  ///< of the variable
  uint32_t cols = 0;
  std::vector<program::MappedBox> mapping = {};
  std::optional<PartedMatrix> parts = {};  ///< the matrix is stored part by part; without, row by row
  bool transposed = false;                 ///< the transpose of the matrix is stored
  std::vector<uint64_t> blocks = {};       ///< packed values: row i is block blocks[i] of the pattern

  /// Whether elements are stored in the same order, wherever they lie.
  bool has_order_of(const OperandLayout& other) const {
    return rows == other.rows && cols == other.cols && parts == other.parts &&
           transposed == other.transposed && blocks == other.blocks;
  }

  /// The elements to bind to such an operand, from a row-major matrix, and back.
  std::vector<float> store(std::span<const float> matrix) const;
  void load(std::span<const float> stored, std::span<float> matrix) const;
};

/// The matrix itself.
OperandLayout matrix_layout(uint32_t rows, uint32_t cols, std::vector<program::MappedBox> mapping);
/// Part by part.
OperandLayout parted_layout(PartedMatrix parts, std::vector<program::MappedBox> mapping);

/// The copies that turn an operand of one layout into one of another. Throws UsageError where only one of
/// them is stored as its transpose: an exchange does not transpose.
program::CopySet conversion(const Operand& from, const OperandLayout& has, const Operand& to,
                            const OperandLayout& wants);

/// How the operands of a product lie, as its plan wants them.
struct ProductLayouts {
  OperandLayout values = {};
  OperandLayout x = {};
  OperandLayout y = {};
  OperandLayout metadata = {};  ///< of a dynamic W
  OperandLayout bias = {};
};

/// Layouts that an operand may have; where there are none, the planner chooses.
struct LayoutChoices {
  std::vector<OperandLayout> values = {};
  std::vector<OperandLayout> x = {};
  std::vector<OperandLayout> y = {};
};

}  // namespace tessera::ops
