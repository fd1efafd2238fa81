// Rows of a sparse weight that a list names, and sums of rows at its pattern, in packed order.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// take_element_rows: out[i] = W[rows[i]] of a weight of single elements; take_block_rows: of blocks. Fields
/// "rows" (count × 1, u32), "values", the arrays of W's index, all of them whole, and "out" (count × columns
/// of W, of the type of the values); W has "table_rows" rows. Throw MissingRow.
#define TESSERA_ELEMENT_ROWS_INDEX(X) \
  X(chunk_begin) X(blocks, .alignment = 8) X(row_groups, .alignment = 2) X(indices)
#define TESSERA_BLOCK_ROWS_INDEX(X) X(row_begin) X(columns, .alignment = 2) X(slots, .optional = true)
#define TESSERA_TAKE_ELEMENT_ROWS_FIELDS(X) \
  X(rows) X(values) TESSERA_ELEMENT_ROWS_INDEX(X) X(out, .access = program::Access::out)
#define TESSERA_TAKE_BLOCK_ROWS_FIELDS(X) \
  X(rows) X(values) TESSERA_BLOCK_ROWS_INDEX(X) X(out, .access = program::Access::out)
#define TESSERA_TAKE_ELEMENT_ROWS_PARAMS(X) X(k_block) X(table_rows)
#define TESSERA_TAKE_BLOCK_ROWS_PARAMS(X) X(block_size) X(table_rows)

/// add_element_rows, add_block_rows: dW[rows[i]] += added[i] for all i in order, where dW (f32, whole) has
/// elements; "added" is count × columns of W, f32. Of `parts` vertices, number `part` has the chunks, or
/// block rows, with that remainder. The row "skipped" is left out. Throw MissingRow.
#define TESSERA_ADD_ELEMENT_ROWS_FIELDS(X) \
  X(rows) X(added) TESSERA_ELEMENT_ROWS_INDEX(X) X(dw, .access = program::Access::inout, .scattered = true)
#define TESSERA_ADD_BLOCK_ROWS_FIELDS(X) \
  X(rows) X(added) TESSERA_BLOCK_ROWS_INDEX(X) X(dw, .access = program::Access::inout, .scattered = true)
#define TESSERA_ADD_TO_ROWS_PARAMS(X) X(skipped) X(part) X(parts)
#define TESSERA_ADD_ELEMENT_ROWS_PARAMS(X) TESSERA_TAKE_ELEMENT_ROWS_PARAMS(X) TESSERA_ADD_TO_ROWS_PARAMS(X)
#define TESSERA_ADD_BLOCK_ROWS_PARAMS(X) TESSERA_TAKE_BLOCK_ROWS_PARAMS(X) TESSERA_ADD_TO_ROWS_PARAMS(X)

#define TESSERA_WEIGHT_ROWS_CODELETS(X)                                                                    \
  X(take_element_rows, TESSERA_TAKE_ELEMENT_ROWS_FIELDS, TESSERA_TAKE_ELEMENT_ROWS_PARAMS,                 \
    take_element_rows_simd, 512)                                                                           \
  X(take_block_rows, TESSERA_TAKE_BLOCK_ROWS_FIELDS, TESSERA_TAKE_BLOCK_ROWS_PARAMS, take_block_rows_simd, \
    512)                                                                                                   \
  X(add_element_rows, TESSERA_ADD_ELEMENT_ROWS_FIELDS, TESSERA_ADD_ELEMENT_ROWS_PARAMS,                    \
    add_element_rows_simd, 512)                                                                            \
  X(add_block_rows, TESSERA_ADD_BLOCK_ROWS_FIELDS, TESSERA_ADD_BLOCK_ROWS_PARAMS, add_block_rows_simd, 512)
TESSERA_DECLARE_FAMILY(weight_rows, TESSERA_WEIGHT_ROWS_CODELETS)
TESSERA_POSITIONS(add_element_rows_param, TESSERA_ADD_ELEMENT_ROWS_PARAMS)

}  // namespace tessera::kernels
