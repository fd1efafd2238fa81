// Converts matrices between FP32 and their form on tiles.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::product {

/// Elements rounded to a type, as bytes.
std::vector<std::byte> as_type(std::span<const float> elements, Type type);
std::vector<float> as_floats(std::span<const std::byte> bytes, Type type);

/// Converts a matrix of any strides to a contiguous row-major one, and back.
std::vector<float> row_by_row(const MatrixView<const float>& matrix, uint32_t rows, uint32_t cols);
void spread(std::span<const float> row_by_row, const MatrixView<float>& matrix, uint32_t rows, uint32_t cols);

}  // namespace tessera::product
