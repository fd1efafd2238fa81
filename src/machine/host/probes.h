// The inner loops of measuring, for the active instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::machine {

/// FP32 operations of one iteration of fma_loop.
size_t fma_loop_flops();

/// Independent multiply-adds in registers, enough of them to hide their latency. The result keeps
/// the compiler from dropping the loop.
float fma_loop(uint64_t iterations);

/// Reads `words` FP32 words, a multiple of 256, aligned to 64 bytes, again and again. The result
/// depends on all.
float read_loop(const float* from, size_t words, int repeats);

/// Writes and copies, with the same demands.
void write_loop(float* to, size_t words);
void copy_loop(const float* from, float* to, size_t words);

/// A chain of `length` dependent integer additions: one cycle each on every processor of interest.
uint64_t cycle_chain(uint64_t length);

}  // namespace tessera::machine
