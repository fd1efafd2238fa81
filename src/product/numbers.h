// Matrices in FP32 as tiles store them, and back.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::product {

/// Elements in the bytes of a type, rounded.
std::vector<std::byte> as_type(std::span<const float> elements, Type type);
std::vector<float> as_floats(std::span<const std::byte> bytes, Type type);

/// A matrix of any strides, row by row without gaps, and back.
std::vector<float> row_by_row(const MatrixView<const float>& matrix, uint32_t rows, uint32_t cols);
void spread(std::span<const float> row_by_row, const MatrixView<float>& matrix, uint32_t rows, uint32_t cols);

}  // namespace tessera::product
