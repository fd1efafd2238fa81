#include <tessera/types.h>

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
