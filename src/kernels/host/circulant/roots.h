// Roots of unity, in the order in which the transforms of circulant layers split polynomials.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::kernels {

/// Factors for the split of the polynomials modulo x^K − e^(2πi t) into four modulo x^(K/4) − …: the powers
/// ζ, ζ² and ζ³ of ζ = e^(2πi t / 4). ζ² alone splits in two.
struct FourierRoots {
  float real[3];
  float imaginary[3];
};

/// The roots of block b, for t = t(b): t(1) = 1/4, and t(2b + r) = (t(b) + r) / 2 for the halves r = 0, 1 of
/// block b. A table for all b < blocks, a power of two. It is computed in float64 at the first call and lives
/// as long as the process; any number of threads may call.
const FourierRoots* fourier_roots(uint32_t blocks);

}  // namespace tessera::kernels
