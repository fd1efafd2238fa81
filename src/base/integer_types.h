// The element types that are integers.
#pragma once

#include <tessera/types.h>

namespace tessera {

constexpr bool is_integer(Type type) {
  return type != Type::f32 && type != Type::f16 && type != Type::bf16 && type != Type::f64;
}

}  // namespace tessera
