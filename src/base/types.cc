#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/types.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera {

std::string_view name_of(Type type) {
  switch (type) {
    case Type::f32: return "f32";
    case Type::f16: return "f16";
    case Type::bf16: return "bf16";
    case Type::u8: return "u8";
    case Type::u16: return "u16";
    case Type::u32: return "u32";
    case Type::i32: return "i32";
    case Type::u64: return "u64";
    case Type::f64: return "f64";
  }
  return "?";
}

namespace {

constexpr std::array<std::string_view, 6> kActivations = {"none",      "relu", "gelu",
                                                          "gelu_tanh", "silu", "relu6"};

}  // namespace

std::string_view name_of(Activation activation) { return kActivations.at(static_cast<size_t>(activation)); }

Activation activation_named(std::string_view name) {
  const auto* const found = std::ranges::find(kActivations, name);
  if (found == kActivations.end())
    throw UsageError(
        fmt::format("unknown activation '{}' (choose from {})", name, fmt::join(kActivations, ", ")));
  return static_cast<Activation>(found - kActivations.begin());
}

double epsilon_of(Type type) {
  switch (type) {
    case Type::bf16: return std::ldexp(1.0, -7);
    case Type::f16: return std::ldexp(1.0, -10);
    case Type::f32: return std::ldexp(1.0, -23);
    case Type::f64: return std::ldexp(1.0, -52);
    default: return 0.0;
  }
}

}  // namespace tessera
