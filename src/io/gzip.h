// Files that may be gzip-compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/source.h"

namespace tessera::io {

/// Reads the content of a source, decompressed if it begins like a gzip file. Throws Error if that fails or
/// yields more than `most` bytes.
std::vector<std::byte> read_decompressed(const Source& source, uint64_t most);

}  // namespace tessera::io
