// Where weight matrices come from: files, and generators of typical patterns.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <string>

namespace tessera {

/// Reads a weight matrix; the extension names the format:
/// - `.smtx`: a pattern, "rows, cols, nnz" / row offsets / column indices, as DLMC has it;
/// - `.mtx`: Matrix Market, coordinate or array; real, integer or pattern; general, symmetric or
///   skew-symmetric. Entries that are stored stay in the pattern, zeros included;
/// - `.npy`: a 2-D array of floating-point numbers, integers or booleans; zeros are left out;
/// - `.safetensors`: the 2-D tensor of that name (may be left out when the file has only one), of
///   F64, F32, F16, BF16 or integers; zeros are left out.
///
/// The result has block size 1. A file without values gets seeded ones, as generate() makes them.
/// Throws Error, naming the file and the place in it, when it cannot be read, is malformed or does
/// not fit in memory; UsageError when the extension or the tensor is unknown.
SparseMatrix read_matrix(const std::string& path, const std::string& tensor = "", uint64_t seed = 0);

/// How a generated pattern places its blocks.
enum class PatternKind : uint8_t {
  random,     ///< uniformly, anywhere
  banded,     ///< equally many a row, around the diagonal; moved inwards at the corners
  power_law,  ///< rows in a random order get blocks in proportion to 1/rank (Zipf's law), at most
              ///< a full row; columns are uniform
};

/// A matrix to generate. Round(density × blocks of the whole matrix) blocks are placed, exactly.
struct GeneratedMatrix {
  PatternKind kind = PatternKind::random;
  uint32_t rows = 0;        ///< m, in elements
  uint32_t cols = 0;        ///< k, in elements
  double density = 0;       ///< share of blocks that are stored, 0 to 1
  uint32_t block_size = 1;  ///< b
  uint64_t seed = 0;
};

/// Makes the matrix, with values uniform in (-1, 1) and never 0. The same bits on every platform.
/// Throws UsageError for a density or sizes out of range, Error when it does not fit in memory.
SparseMatrix generate(const GeneratedMatrix& wanted);

/// The matrix with its stored elements covered by b × b blocks on the grid of multiples of b; what
/// a block covers beyond them is 0 (fill-in). Throws UsageError for a malformed matrix or b = 0.
SparseMatrix cover_with_blocks(const SparseMatrix& matrix, uint32_t block_size);

}  // namespace tessera
