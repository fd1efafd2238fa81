// Operands of operations: variables of a program.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::ops {

/// A matrix in a program: a variable, or a box of a variable.
struct Operand {
  program::VariableId variable = 0;
  program::Box box;

  bool operator==(const Operand&) const = default;
  uint32_t rows() const { return box.rows; }
  uint32_t cols() const { return box.cols; }
  /// Converts a box of the operand to a box of its variable.
  program::Box inside(const program::Box& part) const {
    return {box.row + part.row, part.rows, box.col + part.col, part.cols};
  }
  std::vector<program::Box> inside(std::vector<program::Box> parts) const {
    for (program::Box& part : parts) part = inside(part);
    return parts;
  }
  /// A box of the operand as an operand.
  Operand part(const program::Box& inner) const { return {variable, inside(inner)}; }
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

/// Copies boxes of one operand to equally many boxes of another.
inline program::CopyGroup copy_boxes(const Operand& from, std::vector<program::Box> sources,
                                     const Operand& to, std::vector<program::Box> targets) {
  program::CopyGroup group = copy_of(from, to);
  group.count = static_cast<uint32_t>(sources.size());
  group.source = program::BoxSeries::table(from.inside(std::move(sources)));
  group.target = program::BoxSeries::table(to.inside(std::move(targets)));
  return group;
}

/// Copies an operand to `count` positions of another: to its first corner, and each time a step further.
inline program::CopyGroup copy_to_all(const Operand& from, const Operand& to, uint32_t count,
                                      program::BoxSeries::Step step) {
  program::CopyGroup group = copy_of(from, to);
  group.count = count;
  group.target = program::BoxSeries::stepped(to.inside({0, from.rows(), 0, from.cols()}), step);
  return group;
}

/// Copies rows[i] of one operand to row i of another, all columns.
program::CopyGroup gather_rows(const Operand& from, const Operand& to, const std::vector<uint32_t>& rows);

}  // namespace tessera::ops
