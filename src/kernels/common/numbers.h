// Converts arrays between FP32 and the types that programs store.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <span>
#include <vector>

namespace tessera::kernels {

/// Elements rounded to a type, as bytes.
std::vector<std::byte> as_type(std::span<const float> elements, Type type);
std::vector<float> as_floats(std::span<const std::byte> bytes, Type type);

}  // namespace tessera::kernels
