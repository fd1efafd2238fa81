// Values of weights as arrays of the type in which they are packed.
#pragma once

#include <tessera/types.h>

#include <type_traits>

#include "base/half.h"

namespace tessera::sparse {

inline void convert(float from, float& to) { to = from; }
inline void convert(float from, base::Half& to) { to = base::to_half(from); }
inline void convert(float from, base::Bfloat16& to) { to = base::to_bfloat16(from); }

/// Calls visit with packed values as an array of their type.
template <class Byte, class Visit>
void with_values(Type type, Byte* bytes, const Visit& visit) {
  const auto as = [&]<class T>(T) {
    visit(reinterpret_cast<std::conditional_t<std::is_const_v<Byte>, const T, T>*>(bytes));
  };
  switch (type) {
    case Type::f16: return as(base::Half{});
    case Type::bf16: return as(base::Bfloat16{});
    default: return as(float{});
  }
}

}  // namespace tessera::sparse
