// Inner loops of measurements, for the active instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::machine {

/// FP32 operations of one iteration of fma_loop.
size_t fma_loop_flops();

/// Independent multiply-adds in registers, enough to hide their latency. The result keeps the compiler from
/// removing the loop.
float fma_loop(uint64_t iterations);

/// Reads `words` FP32 words, a multiple of 256, aligned to 64 bytes, repeatedly. The result depends on all of
/// them.
float read_loop(const float* from, size_t words, int repeats);

/// Write and copy FP32 words, with the requirements of read_loop().
void write_loop(float* to, size_t words);
void copy_loop(const float* from, float* to, size_t words);

/// A chain of `length` dependent integer additions: one cycle each on all relevant processors.
uint64_t cycle_chain(uint64_t length);

}  // namespace tessera::machine
