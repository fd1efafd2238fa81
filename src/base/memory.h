// Available memory, checked before large allocations.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::base {

/// Bytes that this process can still allocate: the system's available memory, limited by the container.
/// UINT64_MAX if unknown.
uint64_t available_memory();

/// "1.5 GB"
std::string bytes_text(uint64_t bytes);

/// Throws Error if `bytes` exceeds the available memory. `what` begins the message and says what needs it:
/// "w.mtx: the matrix of 10 x 20 with 7 non-zeros".
void require_memory(uint64_t bytes, const std::string& what);

}  // namespace tessera::base
