// Modes of a product: its arithmetic, and whether its pattern is fixed.
#pragma once

#include <tessera/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::ops {

/// Arithmetic of a product.
struct Precision {
  Type type = Type::f32;      ///< type of W; on tiles, also of X and Y
  bool f32_partials = false;  ///< f16-f32: partial sums that leave a tile are FP32, not FP16

  bool operator==(const Precision&) const = default;
  auto operator<=>(const Precision&) const = default;
};

inline constexpr std::array<Precision, 4> kPrecisions = {
    {{Type::f32, false}, {Type::f16, false}, {Type::bf16, false}, {Type::f16, true}}};

/// "f32", "f16", "bf16", "f16-f32".
inline std::string name_of(const Precision& precision) {
  return precision.f32_partials ? "f16-f32" : std::string(tessera::name_of(precision.type));
}

/// Whether the pattern is fixed at planning time, changes at run time, or is full.
enum class Mode : uint8_t { static_sparse, dynamic_sparse, dense };
inline constexpr std::array<Mode, 3> kModes = {Mode::static_sparse, Mode::dynamic_sparse, Mode::dense};

/// "static", "dynamic", "dense".
inline std::string_view name_of(Mode mode) {
  switch (mode) {
    case Mode::static_sparse: return "static";
    case Mode::dynamic_sparse: return "dynamic";
    case Mode::dense: break;
  }
  return "dense";
}

}  // namespace tessera::ops
