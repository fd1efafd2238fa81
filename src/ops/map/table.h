// Tables that lie on tiles in a grid of parts, as products have a dense weight: rows chosen at run time, and
// rows added to, where they are.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/builder.h"
#include "ops/parted_matrix.h"

namespace tessera::ops {

/// out[i] = table[rows[i]], bit by bit, with a list of `rows` u32 read at run time; a row that the table does
/// not have is an error of the run. The table has one slice; rows to rows × cols.
struct TableLookupProblem {
  Type type = Type::f32;
  PartedMatrix table;
  uint32_t rows = 0;
};

/// table[rows[i]] += values[i] for all i in order, of f32, with values of a floating-point type; the row
/// `skipped` is left out. The table may lie row by row instead of part by part, best in part_boxes().
struct TableAddProblem {
  PartedMatrix table;
  uint32_t rows = 0;
  std::optional<uint32_t> skipped = {};
  Type values = Type::f32;
  bool lies_in_rows = false;
};

/// A mapping of a matrix that lies row by row: each part is on one tile, from the first on.
std::vector<program::MappedBox> part_boxes(const PartedMatrix& parts);

/// Operands "rows", "table", "out"; and "rows", "values", "table". Only on tiles. A part is read and written
/// on the tile where it begins.
program::StepId add(const Builder& builder, const TableLookupProblem& problem,
                    const std::vector<Operand>& operands);
program::StepId add(const Builder& builder, const TableAddProblem& problem,
                    const std::vector<Operand>& operands);

}  // namespace tessera::ops
