// How much memory there is, asked before something large is allocated.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::base {

/// Bytes that this process can still allocate: what the system has available, within the limit of
/// the container. UINT64_MAX where that is not known.
uint64_t available_memory();

/// "1.5 GB"
std::string bytes_text(uint64_t bytes);

/// Throws Error when `bytes` are more than available. `what` begins the message and says for what:
/// "w.mtx: the matrix of 10 x 20 with 7 non-zeros".
void require_memory(uint64_t bytes, const std::string& what);

}  // namespace tessera::base
