// Values in files and mapped memory: unaligned, in either byte order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tessera::io {

/// The value at `bytes`; `swap`: in the other byte order.
template <class T>
T load(const std::byte* bytes, bool swap) {
  std::byte copy[sizeof(T)];
  std::memcpy(copy, bytes, sizeof(T));
  if (swap) std::reverse(copy, copy + sizeof(T));
  T value;
  std::memcpy(&value, copy, sizeof(T));
  return value;
}

}  // namespace tessera::io
