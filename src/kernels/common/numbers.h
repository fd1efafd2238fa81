// Converts arrays between FP32 and the types that programs store.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::kernels {

/// Elements rounded to a type, as bytes.
std::vector<std::byte> as_type(std::span<const float> elements, Type type);
std::vector<float> as_floats(std::span<const std::byte> bytes, Type type);

/// Throws UsageError, naming what has them, for elements that a type of integers does not hold: fractions,
/// NaN, and numbers beyond its limits.
void require_held(std::string_view name, std::span<const float> elements, Type type);

}  // namespace tessera::kernels
