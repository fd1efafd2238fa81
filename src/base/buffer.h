// Memory for large arrays that kernels stream.
#pragma once

#include <cstddef>
#include <memory>

namespace tessera::base {

struct FreeBuffer {
  void operator()(std::byte* p) const;
};

/// Aligned to cache lines; from 2 MiB on in huge pages if the system grants them, which saves kernels a page
/// walk every 4 KiB.
using Buffer = std::unique_ptr<std::byte[], FreeBuffer>;

/// `bytes` bytes, not initialised. Throws std::bad_alloc.
Buffer allocate_buffer(size_t bytes);

}  // namespace tessera::base
