#include <bit>
#include <cmath>

#include "kernels/host/circulant/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

using enum Type;

/// in × out features at a scale; `scale` 0 has none.
struct Features {
  uint32_t in, out, taps;
  bool toeplitz;
};

/// n = 8 · scale: at 1, 2 and 128 a power of two.
Features square(uint32_t scale) { return {8 * scale, 8 * scale, 8 * scale, false}; }
/// The next power of two, with rectangular x and y.
Features rectangular(uint32_t scale) {
  return {6 * scale, 7 * scale, scale == 0 ? 0 : std::bit_ceil(8 * scale), false};
}
/// At 1 and 2 a power of two below the vectors.
Features small(uint32_t scale) {
  return {scale, 3 * scale, scale == 0 ? 0 : std::bit_ceil(3 * scale), false};
}
Features odd(uint32_t scale) { return {5 * scale, 3 * scale, 7 * scale, false}; }
Features toeplitz(uint32_t scale) { return {3 * scale, 7 * scale, scale == 0 ? 0 : 10 * scale - 1, true}; }

/// Values below 1, `terms` of which are added: roundings grow with the halvings of a transform of twice the
/// size, and its values with the root of their number.
Tolerance transform_tolerance(double taps, double terms) {
  const double halvings = std::log2(2 * taps + 2) + 3;
  return {.relative = 0, .absolute = 4 * halvings * std::sqrt(terms + 1) * epsilon_of(f32)};
}

double transform_flops(double taps) { return 2.5 * taps * std::log2(taps + 1); }

template <uint32_t n, Features (*features)(uint32_t), bool transposed>
Sample forward_sample(uint32_t scale, uint64_t seed) {
  const auto [in, out, taps, toeplitz] = features(scale);
  Sample s(circulant_forward_codelet);
  s.batch(n, in, transposed, seed);
  s.random(f32, taps == 0 ? 0 : 1, taps, seed + 1);
  s.unset_batch(n, out, transposed);
  s.scratch(scale == 0 ? 0 : circulant_forward_scratch({in, out, taps, toeplitz}));
  return s.param(transposed)
      .param(toeplitz)
      .tolerance(transform_tolerance(taps, in))
      .flops(2 * n * transform_flops(taps));
}

template <uint32_t n, Features (*features)(uint32_t), bool transposed, bool has_dx = true, bool has_dc = true>
Sample gradients_sample(uint32_t scale, uint64_t seed) {
  const auto [in, out, taps, toeplitz] = features(scale);
  Sample s(circulant_gradients_codelet);
  s.batch(n, in, transposed, seed);
  s.batch(n, out, transposed, seed + 1);
  s.random(f32, taps == 0 ? 0 : 1, taps, seed + 2);
  s.unset_batch(n, has_dx ? in : 0, transposed);
  s.unset(f32, taps == 0 ? 0 : 1, has_dc ? taps : 0);
  s.scratch(scale == 0 ? 0 : circulant_gradients_scratch({in, out, taps, toeplitz}));
  return s.param(transposed)
      .param(toeplitz)
      .tolerance(transform_tolerance(taps, double{n} * (in + out)))
      .flops(3 * n * transform_flops(taps));
}

constexpr NamedSample circulant_forward_uses[] = {
    {"n1", forward_sample<1, square, false>},
    {"n16-transposed", forward_sample<16, square, true>},
    {"n19", forward_sample<19, square, false>},
    {"n19-small", forward_sample<19, small, false>},
    {"n32", forward_sample<32, square, false>},
    {"n32-transposed", forward_sample<32, square, true>},
    {"n37-rectangular", forward_sample<37, rectangular, false>},
    {"n21-odd", forward_sample<21, odd, false>},
    {"n5-odd-transposed", forward_sample<5, odd, true>},
    {"n19-toeplitz", forward_sample<19, toeplitz, false>},
    {"n50-toeplitz-transposed", forward_sample<50, toeplitz, true>},
};

constexpr NamedSample circulant_gradients_uses[] = {
    {"n1", gradients_sample<1, square, false>},
    {"n19", gradients_sample<19, square, false>},
    {"n19-small", gradients_sample<19, small, false>},
    {"n32", gradients_sample<32, square, false>},
    {"n32-transposed", gradients_sample<32, square, true>},
    {"n32-dx", gradients_sample<32, square, false, true, false>},
    {"n32-dc", gradients_sample<32, square, false, false, true>},
    {"n27-rectangular", gradients_sample<27, rectangular, false>},
    {"n2-dx", gradients_sample<2, square, true, true, false>},
    {"n2-dc", gradients_sample<2, odd, false, false, true>},
    {"n21-odd", gradients_sample<21, odd, false>},
    {"n19-toeplitz", gradients_sample<19, toeplitz, false>},
    {"n50-toeplitz-transposed", gradients_sample<50, toeplitz, true>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(circulant, TESSERA_CIRCULANT_CODELETS)

}  // namespace tessera::kernels
