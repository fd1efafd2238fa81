// The processor's units for products of BF16 values with FP32 sums.
#pragma once

namespace tessera {

/// Whether there are AVX-512 dot products of pairs (vdpbf16ps).
bool has_bf16_dots();

/// Whether BF16 dot products compute fewer products per cycle than FP32 multiply-adds, as on Intel's
/// processors from Sapphire Rapids on: 16 instead of 32. AMD's processors start equally many instructions of
/// either kind.
bool has_slow_bf16_dots();

/// Whether there are AMX tiles (tdpbf16ps) and the operating system lets this process use them, which the
/// first call requests.
bool has_bf16_tiles();

}  // namespace tessera
