// Large memory of which only a small part is used.
#pragma once

#include <cstddef>

namespace tessera::base {

/// Zeros that take no memory until they are written: they may exceed the system's memory.
class ReservedMemory {
 public:
  ReservedMemory() = default;
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  /// Reserves the bytes; may be called once. What is written takes huge pages, if they are wanted and the
  /// system grants them. Throws Error if there is no address space.
  void reserve(size_t bytes, bool in_huge_pages = false);
  std::byte* get() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tessera::base
