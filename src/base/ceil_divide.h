#pragma once

#include <concepts>
#include <type_traits>

namespace tessera::base {

/// ⌈a / b⌉, without overflow.
template <std::unsigned_integral A, std::unsigned_integral B>
constexpr std::common_type_t<A, B> ceil_divide(A a, B b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace tessera::base
