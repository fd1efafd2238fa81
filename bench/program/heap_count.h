// Bytes on the heap, counted by replacing operator new.
#pragma once

#include <cstdint>

/// Bytes allocated and not yet freed.
uint64_t live_bytes();
/// Maximum of live_bytes() since restart_peak().
uint64_t peak_bytes();
void restart_peak();
