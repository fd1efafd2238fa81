// Memory of which little is used.
#pragma once

#include <cstddef>

namespace tessera::base {

/// Zeros that take no memory before they are written: there may be more of them than the system has memory.
class ReservedMemory {
 public:
  ReservedMemory() = default;
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  /// Once. Throws Error if there is no address space.
  void reserve(size_t bytes);
  std::byte* get() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tessera::base
