// Data movement: rows or elements given by a list, and whole boxes.
#pragma once

#include <span>

#include "kernels/sample.h"

namespace tessera::kernels {

/// out[i] = source[rows[i]]. Fields "rows" (count × 1, u32 or u16), "source", "out" (count × the
/// source's columns, of its type).
extern const program::Codelet gather_rows_codelet;

/// out[i] = source[places[i]], elements counted row by row. Fields "source", "places" (u32, below the
/// source's number of elements), "out" (of the shape of places and the type of the source).
extern const program::Codelet gather_elements_codelet;

/// out = in, whatever their strides. Fields of one shape and type.
extern const program::Codelet copy_codelet;

std::span<const ListedCodelet> gather_codelets();

}  // namespace tessera::kernels
