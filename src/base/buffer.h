// Memory for large arrays that kernels stream.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace tessera::base {

struct FreeBuffer {
  void operator()(std::byte* p) const;
};

/// Memory aligned to cache lines; from 2 MiB on in huge pages if the system grants them, which saves kernels
/// a page walk every 4 KiB.
using Buffer = std::unique_ptr<std::byte[], FreeBuffer>;

/// `bytes` bytes, not initialised. Throws std::bad_alloc.
Buffer allocate_buffer(size_t bytes);

/// An allocator that gives a vector such memory.
template <class T>
struct BufferAllocator {
  using value_type = T;

  BufferAllocator() = default;
  template <class U>
  BufferAllocator(const BufferAllocator<U>&) {}

  T* allocate(size_t count) { return reinterpret_cast<T*>(allocate_buffer(count * sizeof(T)).release()); }
  void deallocate(T* items, size_t) { FreeBuffer()(reinterpret_cast<std::byte*>(items)); }
  template <class U>
  bool operator==(const BufferAllocator<U>&) const {
    return true;
  }
};

template <class T>
using BufferVector = std::vector<T, BufferAllocator<T>>;

}  // namespace tessera::base
