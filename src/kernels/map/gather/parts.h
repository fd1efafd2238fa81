// Tables of which each tile has a part: some columns of consecutive rows, stored row by row in one row of a
// variable. Of the rows that a list chooses, each tile takes what it has, and the parts of all tiles are
// joined.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Element i · "cols" + c of out, counted row by row, is element c of row rows[i] of the table if the part
/// has it, and otherwise all bits 0. Fields "rows" (count × 1, u32), "part" (1 × rows · cols) and "out"
/// (count · cols elements of its type). The part begins with row "first" of the table's "table_rows". Throws
/// MissingRow.
#define TESSERA_ROWS_OF_PART_FIELDS(X) X(rows) X(part) X(out, .access = program::Access::out)
#define TESSERA_ROWS_OF_PART_PARAMS(X) X(cols) X(first) X(table_rows)

/// Element i of out, counted row by row, has the bits that any of the elements (p, i) of "parts" has.
#define TESSERA_JOIN_ROWS_FIELDS(X) X(parts) X(out, .access = program::Access::out)

/// part[rows[i] − first] += values[i] for all i in order whose row the part has, but for the row "skipped".
/// Fields "rows" and "part" (f32) as above, or a part of rows × columns, and "values" (count × columns, f32,
/// f16 or bf16). Throws MissingRow.
#define TESSERA_ADD_ROWS_TO_PART_FIELDS(X) X(rows) X(values) X(part, .access = program::Access::inout)
#define TESSERA_ADD_ROWS_TO_PART_PARAMS(X) X(skipped) X(first) X(table_rows)

#define TESSERA_PART_OF_TABLE_CODELETS(X)                                                               \
  X(rows_of_part, TESSERA_ROWS_OF_PART_FIELDS, TESSERA_ROWS_OF_PART_PARAMS, nullptr, 320,               \
    .runs_on = program::RunsOn::tiles)                                                                  \
  X(join_rows, TESSERA_JOIN_ROWS_FIELDS, TESSERA_NONE, nullptr, 256, .runs_on = program::RunsOn::tiles) \
  X(add_rows_to_part, TESSERA_ADD_ROWS_TO_PART_FIELDS, TESSERA_ADD_ROWS_TO_PART_PARAMS, nullptr, 384,   \
    .runs_on = program::RunsOn::tiles)
TESSERA_PART_OF_TABLE_CODELETS(TESSERA_DECLARE_FUNCTIONS)
TESSERA_POSITIONS(rows_of_part_param, TESSERA_ROWS_OF_PART_PARAMS)
TESSERA_POSITIONS(add_rows_to_part_param, TESSERA_ADD_ROWS_TO_PART_PARAMS)

}  // namespace tessera::kernels
