// Layouts of operands: the order of their elements, the shape of their variable, and their mapping.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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

  /// The elements to bind to such an operand, from a row-major matrix, and back.
  std::vector<float> store(std::span<const float> matrix) const;
  void load(std::span<const float> stored, std::span<float> matrix) const;
};

/// The matrix itself.
OperandLayout matrix_layout(uint32_t rows, uint32_t cols, std::vector<program::MappedBox> mapping);
/// Part by part.
OperandLayout parted_layout(PartedMatrix parts, std::vector<program::MappedBox> mapping);

/// How the operands of a product lie, as its plan wants them.
struct ProductLayouts {
  OperandLayout values, x, y;
  OperandLayout metadata = {};  ///< of a dynamic W
};

}  // namespace tessera::ops
