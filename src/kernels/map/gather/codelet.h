// Data movement: rows or elements given by a list, whole boxes, and transposes.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_GATHER_ROWS_FIELDS(X) X(rows, .alignment = 2) X(source) X(out, .access = program::Access::out)
#define TESSERA_GATHER_ELEMENTS_FIELDS(X) X(source) X(places) X(out, .access = program::Access::out)
/// Of copy and transpose.
#define TESSERA_COPY_FIELDS(X) X(in) X(out, .access = program::Access::out)

namespace gather_rows_field {
enum : size_t { TESSERA_GATHER_ROWS_FIELDS(TESSERA_POSITION) count };
}
namespace gather_elements_field {
enum : size_t { TESSERA_GATHER_ELEMENTS_FIELDS(TESSERA_POSITION) count };
}
namespace copy_field {
enum : size_t { TESSERA_COPY_FIELDS(TESSERA_POSITION) count };
}

/// out[i] = source[rows[i]]. Fields "rows" (count × 1, u32 or u16), "source", "out" (count × the
/// source's columns, of its type).
extern const program::Codelet gather_rows_codelet;

/// out[i] = source[places[i]], elements counted row by row. Fields "source", "places" (u32, below the
/// source's number of elements), "out" (of the shape of places and the type of the source).
extern const program::Codelet gather_elements_codelet;

/// out = in, whatever their strides. Fields of one shape and type.
extern const program::Codelet copy_codelet;

/// out = inᵀ, whatever their strides.
extern const program::Codelet transpose_codelet;

std::span<const ListedCodelet> gather_codelets();

}  // namespace tessera::kernels
