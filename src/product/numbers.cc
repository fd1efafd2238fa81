#include "product/numbers.h"

#include "kernels/common/element.h"

namespace tessera::product {

std::vector<std::byte> as_type(std::span<const float> elements, Type type) {
  std::vector<std::byte> bytes(elements.size() * size_of(type));
  for (size_t i = 0; i < elements.size(); ++i)
    kernels::store_number(type, bytes.data() + i * size_of(type), elements[i]);
  return bytes;
}

std::vector<float> as_floats(std::span<const std::byte> bytes, Type type) {
  std::vector<float> elements(bytes.size() / size_of(type));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = kernels::value_at(type, bytes.data(), i);
  return elements;
}

std::vector<float> row_by_row(const MatrixView<const float>& matrix, uint32_t rows, uint32_t cols) {
  std::vector<float> elements(size_t{rows} * cols);
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t c = 0; c < cols; ++c) elements[size_t{r} * cols + c] = matrix(r, c);
  return elements;
}

void spread(std::span<const float> row_by_row, const MatrixView<float>& matrix, uint32_t rows,
            uint32_t cols) {
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t c = 0; c < cols; ++c) matrix(r, c) = row_by_row[size_t{r} * cols + c];
}

}  // namespace tessera::product
