#include "kernels/common/numbers.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <limits>

#include "kernels/common/element.h"

namespace tessera::kernels {
namespace {

template <class Integer>
void require_integers(std::string_view name, std::span<const float> elements, Type type) {
  using Limits = std::numeric_limits<Integer>;
  for (const double element : elements)
    if (!(element >= double{Limits::min()} && element <= double{Limits::max()} &&
          element == std::floor(element)))
      throw UsageError(fmt::format("{} has the entry {}; entries of {} are whole numbers from {} to {}", name,
                                   element, name_of(type), Limits::min(), Limits::max()));
}

}  // namespace

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

void require_held(std::string_view name, std::span<const float> elements, Type type) {
  switch (type) {
    case Type::u8: return require_integers<uint8_t>(name, elements, type);
    case Type::u16: return require_integers<uint16_t>(name, elements, type);
    case Type::u32: return require_integers<uint32_t>(name, elements, type);
    case Type::i32: return require_integers<int32_t>(name, elements, type);
    default: return;
  }
}

}  // namespace tessera::kernels
