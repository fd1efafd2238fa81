// Operands of operations: variables that are in a program already.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::ops {

/// A matrix in a program: a variable, or a box of one.
struct Operand {
  program::VariableId variable = 0;
  program::Box box;

  bool operator==(const Operand&) const = default;
  uint32_t rows() const { return box.rows; }
  uint32_t cols() const { return box.cols; }
  /// Converts a box of the operand to one of its variable.
  program::Box inside(const program::Box& part) const {
    return {box.row + part.row, part.rows, box.col + part.col, part.cols};
  }
  std::vector<program::Box> inside(std::vector<program::Box> parts) const {
    for (program::Box& part : parts) part = inside(part);
    return parts;
  }
};

/// Copies one operand to another of its shape.
inline program::CopyGroup copy_of(const Operand& from, const Operand& to) {
  return {from.variable,
          to.variable,
          1,
          program::BoxSeries::same(from.box),
          program::BoxSeries::same(to.box),
          {},
          {},
          {}};
}

/// Copies rows[i] of one operand to row i of another, all columns.
program::CopyGroup gather_rows(const Operand& from, const Operand& to, const std::vector<uint32_t>& rows);

}  // namespace tessera::ops
