// Checks callers' arrays, and converts them to views.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <string_view>

namespace tessera {

/// Throws UsageError for a null array.
void require_array(const void* data, std::string_view name);

/// Throws UsageError for a null array of a matrix that has elements.
void require_array(const float* data, std::string_view name, uint32_t rows, uint32_t cols);

/// A caller's matrix of floats; leading dimension 0 means contiguous. Throws UsageError for a null array or a
/// leading dimension that is too small.
MatrixView<float> view_of(const float* data, std::string_view name, uint32_t rows, uint32_t cols,
                          Layout layout, int64_t leading);

/// Throws UsageError for a null array, and for strides by which elements coincide.
void require_matrix(const MatrixView<float>& matrix, std::string_view name, uint32_t rows, uint32_t cols);

}  // namespace tessera
