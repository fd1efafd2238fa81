// `.smtx`: sparse patterns in the format of the Deep Learning Matrix Collection (DLMC).
#pragma once

#include <tessera/sparse.h>

#include "io/source.h"

namespace tessera::io {

/// Reads "rows, cols, nnz", rows + 1 row offsets and nnz column indices, from 0, all as text. The columns of
/// a row may be in any order, without duplicates. Throws Error for anything else.
Pattern read_smtx(const Source& source);

}  // namespace tessera::io
