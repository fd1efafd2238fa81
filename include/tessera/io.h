// Sources of weight matrices: files, and generators of typical patterns.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// Reads a weight matrix; the file name extension determines the format:
/// - `.smtx`: a pattern, "rows, cols, nnz" / row offsets / column indices, as in DLMC;
/// - `.mtx`: Matrix Market, coordinate or array; real, integer or pattern; general, symmetric or
///   skew-symmetric. Explicitly stored entries stay in the pattern, zeros included;
/// - `.npy`: a 2-D array of floating-point numbers, integers or booleans; zeros are dropped;
/// - `.safetensors`: the 2-D tensor named `tensor` (optional if the file has only one), of F64, F32, F16,
///   BF16 or integers; zeros are dropped.
///
/// The result has block size 1. A file without values gets synthetic values from the seed, as in generate().
/// Throws Error, naming the file and the position in it, if it cannot be read, is malformed or does not fit
/// in memory; UsageError if the extension or the tensor is unknown.
SparseMatrix read_matrix(const std::string& path, const std::string& tensor = "", uint64_t seed = 0);

/// How a generated pattern places its blocks.
enum class PatternKind : uint8_t {
  random,     ///< uniformly, anywhere
  banded,     ///< the same number per row, around the diagonal; shifted inwards at the corners
  power_law,  ///< rows in a random order get blocks in proportion to 1/rank (Zipf's law), up to a full row;
              ///< columns are uniform
  shuffled,   ///< uniformly, anywhere, as the benchmark of PopSparse places them, whose seed is 123
};

/// A matrix to generate. Round(density × blocks of the whole matrix) blocks are placed, exactly.
struct GeneratedMatrix {
  PatternKind kind = PatternKind::random;
  uint32_t rows = 0;        ///< m, in elements
  uint32_t cols = 0;        ///< k, in elements
  double density = 0;       ///< fraction of blocks that are stored, 0 to 1
  uint32_t block_size = 1;  ///< b
  uint64_t seed = 0;
};

/// Generates the matrix, with values uniform in (-1, 1) and never 0. The result is the same on every
/// platform, bit for bit. Throws UsageError for a density or sizes out of range, Error if the matrix does not
/// fit in memory.
SparseMatrix generate(const GeneratedMatrix& wanted);

struct FlatButterflyOptions {
  uint32_t num_factors = 0;  ///< number of factors, from the first of the log₂ butterfly_size; 0: all
  /// Whether the grid is stretched over a rectangular matrix; otherwise a square pattern is repeated, and its
  /// blocks are dealt out in turn along the longer side.
  bool stretch = true;
};

/// The pattern of pixelfly (Chen et al. 2021), a flat block butterfly: on a grid of butterfly_size² cells,
/// stretched over the matrix, it selects the cells (i, i) and (i, i ⊕ 2^k) for each factor k, and has every
/// block that overlaps a selected cell. Throws UsageError unless the butterfly size is a power of two, and
/// for sizes over which the pattern cannot be repeated.
Pattern flat_butterfly(uint32_t rows, uint32_t cols, uint32_t block_size, uint32_t butterfly_size,
                       const FlatButterflyOptions& options = {});

/// The patterns of a block butterfly's factors (Chen et al. 2021), in order of application, by increasing
/// stride: each is the pattern of a butterfly's factor with a block instead of each number, so that the
/// factors' product has exactly one path from each block of inputs to each block of outputs. The first factor
/// maps the inputs to block_size · 2^levels features, repeated as often as the outputs require. Throws
/// UsageError for sizes that are 0 or too large.
std::vector<Pattern> block_butterfly(uint32_t rows, uint32_t cols, uint32_t block_size);

/// Covers the stored elements of a matrix with b × b blocks aligned to multiples of b; other elements of a
/// block are 0 (fill-in). Throws UsageError for a malformed matrix or b = 0.
SparseMatrix cover_with_blocks(const SparseMatrix& matrix, uint32_t block_size);

}  // namespace tessera
