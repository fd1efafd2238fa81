// Memory for large arrays that kernels stream through.
#pragma once

#include <cstddef>
#include <memory>

namespace tessera::base {

struct FreeBuffer {
  void operator()(std::byte* p) const;
};

/// Begins at a cache line; from 2 MiB on in huge pages, where the system grants them, which save
/// the kernels a page walk every 4 KiB.
using Buffer = std::unique_ptr<std::byte[], FreeBuffer>;

/// `bytes` bytes, not initialised. Throws std::bad_alloc.
Buffer allocate_buffer(size_t bytes);

}  // namespace tessera::base
