// Files that may be compressed by gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/source.h"

namespace tessera::io {

/// The content, decompressed where it begins as gzip does. Throws Error where that fails or gives
/// more than `most` bytes.
std::vector<std::byte> read_decompressed(const Source& source, uint64_t most);

}  // namespace tessera::io
