// Generators of sparse matrices.
#pragma once

#include <tessera/io.h>
#include <tessera/sparse.h>

#include <cstdint>
#include <vector>

namespace tessera::sparse {

/// The pattern of a generated matrix, without its values.
Pattern generate_pattern(const GeneratedMatrix& wanted);

/// A value for each stored element of the pattern, including the overhang: uniform in (-1, 1), never 0.
std::vector<float> random_values(const Pattern& pattern, uint64_t seed);

}  // namespace tessera::sparse
