// Bytes on the heap, counted by replacing operator new.
#pragma once

#include <cstdint>

/// Allocated and not yet freed.
uint64_t live_bytes();
/// The most that was allocated at one time since restart_peak().
uint64_t peak_bytes();
void restart_peak();
