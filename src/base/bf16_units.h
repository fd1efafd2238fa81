// What the processor has for products of BF16 values with FP32 sums.
#pragma once

namespace tessera {

/// AVX-512 dot products of pairs (vdpbf16ps).
bool has_bf16_dots();

/// AMX tiles (tdpbf16ps) that the operating system lets this process use; asks it the first time.
bool has_bf16_tiles();

}  // namespace tessera
