// Passes over objects that lie anywhere and are in no cache: they are fetched side by side, ahead of their
// use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera::python {

inline constexpr size_t kLineBytes = 64;

/// Fetches the lines of bytes that need not exist.
inline void prefetch_bytes(const void* at, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t line = address / kLineBytes * kLineBytes; line < address + bytes; line += kLineBytes)
    __builtin_prefetch(reinterpret_cast<const void*>(line));
}

/// Fetches the line at a distance from an address, which need not exist.
inline void prefetch_after(const void* at, size_t bytes) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(at) + bytes));
}

/// A word of an object that is long enough, as an address; null if it can be none.
inline const void* address_in(const void* object, size_t word) {
  uintptr_t address = 0;
  std::memcpy(&address, static_cast<const std::byte*>(object) + word * sizeof address, sizeof address);
  constexpr uintptr_t kFirstPage = 4096;
  const bool is_possible = address >= kFirstPage && address % alignof(void*) == 0;
  return is_possible ? reinterpret_cast<const void*>(address) : nullptr;
}

}  // namespace tessera::python
