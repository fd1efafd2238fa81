#include "kernels/common/numbers.h"

#include "kernels/common/element.h"

namespace tessera::kernels {

std::vector<std::byte> as_type(std::span<const float> elements, Type type) {
  std::vector<std::byte> bytes(elements.size() * size_of(type));
  for (size_t i = 0; i < elements.size(); ++i)
    store_number(type, bytes.data() + i * size_of(type), elements[i]);
  return bytes;
}

std::vector<float> as_floats(std::span<const std::byte> bytes, Type type) {
  std::vector<float> elements(bytes.size() / size_of(type));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = value_at(type, bytes.data(), i);
  return elements;
}

}  // namespace tessera::kernels
