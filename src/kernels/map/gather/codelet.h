// Data movement: rows or elements given by a list, whole boxes, and transposes.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/map/gather/parts.h"

namespace tessera::kernels {

/// out[i] = source[rows[i]]. Fields "rows" (count × 1, u32 or u16), "source" (of "source_rows" rows), "out"
/// (count × the source's columns, of its type). The source lies row by row, or in panels of "panel_rows"
/// rows: element (panel_rows · p + r, c) is element (p, panel_rows · c + r) of the field. Throws MissingRow.
#define TESSERA_GATHER_ROWS_FIELDS(X) X(rows, .alignment = 2) X(source) X(out, .access = program::Access::out)
#define TESSERA_GATHER_ROWS_PARAMS(X) X(panel_rows) X(source_rows)

/// add_rows: out[rows[i]] += values[i] for all i in order; scatter_add_rows: with out = 0 before. Fields
/// "rows" as above, "values" and "out" (f32), which has "out_rows" rows and lies as the source above. The row
/// "skipped" is left out. Throws MissingRow.
#define TESSERA_SCATTER_ADD_ROWS_FIELDS(X) \
  X(rows, .alignment = 2) X(values) X(out, .access = program::Access::out)
#define TESSERA_ADD_ROWS_FIELDS(X) X(rows, .alignment = 2) X(values) X(out, .access = program::Access::inout)
#define TESSERA_ADD_ROWS_PARAMS(X) X(skipped) X(panel_rows) X(out_rows)

/// out[i] = source[places[i]], elements counted row by row. Fields "source", "places" (u32, below the
/// source's number of elements), "out" (of the shape of places and the type of the source).
#define TESSERA_GATHER_ELEMENTS_FIELDS(X) X(source) X(places) X(out, .access = program::Access::out)

/// copy: out = in, whatever their strides. Fields of one shape and type. transpose: out = inᵀ, whatever their
/// strides.
#define TESSERA_COPY_FIELDS(X) X(in) X(out, .access = program::Access::out)

#define TESSERA_GATHER_CODELETS(X)                                                                          \
  X(gather_rows, TESSERA_GATHER_ROWS_FIELDS, TESSERA_GATHER_ROWS_PARAMS, gather_rows_simd, 256)             \
  X(scatter_add_rows, TESSERA_SCATTER_ADD_ROWS_FIELDS, TESSERA_ADD_ROWS_PARAMS, scatter_add_rows_simd, 384) \
  X(add_rows, TESSERA_ADD_ROWS_FIELDS, TESSERA_ADD_ROWS_PARAMS, add_rows_simd, 384)                         \
  X(gather_elements, TESSERA_GATHER_ELEMENTS_FIELDS, TESSERA_NONE, gather_elements_simd, 512,               \
    .runs_on = program::RunsOn::hosts)                                                                      \
  X(copy, TESSERA_COPY_FIELDS, TESSERA_NONE, copy_simd, 128)                                                \
  X(transpose, TESSERA_COPY_FIELDS, TESSERA_NONE, transpose_simd, 256)                                      \
  TESSERA_PART_OF_TABLE_CODELETS(X)
TESSERA_DECLARE_FAMILY(gather, TESSERA_GATHER_CODELETS)
TESSERA_POSITIONS(gather_rows_param, TESSERA_GATHER_ROWS_PARAMS)
TESSERA_POSITIONS(add_rows_param, TESSERA_ADD_ROWS_PARAMS)

}  // namespace tessera::kernels
