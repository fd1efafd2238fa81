// Limits on the sizes that a file may request.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::io {

/// Throws Error, naming the file, if a dimension exceeds the limit for matrices.
void require_sane_sides(const std::string& name, uint64_t rows, uint64_t cols);

/// Throws Error, naming the file, unless a matrix of these sizes can be represented, can hold its non-zeros
/// and justifies its row index: a matrix with many millions of rows or columns, more than it has non-zeros,
/// is rejected, because its index would take memory out of proportion to the file.
void require_sane_sizes(const std::string& name, uint64_t rows, uint64_t cols, uint64_t non_zeros);

}  // namespace tessera::io
