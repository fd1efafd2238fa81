#include <bit>
#include <cmath>

#include "kernels/host/fastfood/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

using enum Type;

/// N and the features of x and y at a scale.
struct Features {
  uint32_t size, stacks, in, out;
};

uint32_t power(uint32_t scale) { return scale == 0 ? 0 : std::bit_ceil(8 * scale); }
Features square(uint32_t scale) { return {power(scale), 1, power(scale), power(scale)}; }
/// At 1 and 2 below the vectors.
Features small(uint32_t scale) {
  const uint32_t size = scale == 0 ? 0 : std::bit_ceil(scale);
  return {size, 2, scale, 2 * size};
}
Features rectangular(uint32_t scale) { return {power(scale), 1, 5 * scale, 7 * scale}; }
Features stacked(uint32_t scale) { return {power(scale), 3, 7 * scale, 2 * power(scale) + 3 * scale}; }

/// A permutation per stack: i → (odd · i + shift) mod N.
void add_stacks(Sample& s, const Features& f, uint64_t seed) {
  for (uint64_t i = 0; i < 3; ++i) s.random(f32, f.stacks, f.size, seed + i);
  s.values(u32, f.stacks, f.size, [&](uint64_t i) {
    const uint64_t row = i / f.size;
    return static_cast<double>(((2 * row + 5) * (i % f.size) + 3 * row + 1) % f.size);
  });
}

/// Values below 1: roundings grow with the halvings, values with the root of the terms.
Tolerance transform_tolerance(const Features& f, double terms) {
  const double halvings = std::log2(f.size + 1.0) + 3;
  return {.relative = 0, .absolute = 4 * halvings * std::sqrt(terms + 1) * epsilon_of(f32)};
}

double transform_flops(const Features& f) { return f.stacks * f.size * std::log2(f.size + 1.0); }

template <uint32_t n, Features (*features)(uint32_t), bool transposed>
Sample forward_sample(uint32_t scale, uint64_t seed) {
  const Features f = features(scale);
  Sample s(fastfood_forward_codelet);
  s.batch(n, f.in, transposed, seed);
  add_stacks(s, f, seed + 1);
  s.unset_batch(n, f.out, transposed);
  s.scratch(fastfood_forward_scratch(f.size));
  return s.param(transposed).tolerance(transform_tolerance(f, 1)).flops(2 * n * transform_flops(f));
}

enum Wanted : uint32_t { dx = 1, ds = 2, dg = 4, db = 8, every = 15 };

template <uint32_t n, Features (*features)(uint32_t), bool transposed, uint32_t wanted = every>
Sample gradients_sample(uint32_t scale, uint64_t seed) {
  const Features f = features(scale);
  Sample s(fastfood_gradients_codelet);
  s.batch(n, f.in, transposed, seed);
  s.batch(n, f.out, transposed, seed + 1);
  add_stacks(s, f, seed + 2);
  s.unset_batch(n, (wanted & dx) != 0 ? f.in : 0, transposed);
  for (uint32_t field : {ds, dg, db}) s.unset(f32, f.stacks, (wanted & field) != 0 ? f.size : 0);
  s.scratch(fastfood_gradients_scratch(f.size));
  return s.param(transposed).tolerance(transform_tolerance(f, n)).flops(4 * n * transform_flops(f));
}

constexpr NamedSample fastfood_forward_uses[] = {
    {"n1", forward_sample<1, square, false>},
    {"n16-transposed", forward_sample<16, square, true>},
    {"n19-small", forward_sample<19, small, false>},
    {"n32", forward_sample<32, square, false>},
    {"n32-transposed", forward_sample<32, square, true>},
    {"n29-rectangular", forward_sample<29, rectangular, false>},
    {"n21-stacks", forward_sample<21, stacked, false>},
    {"n5-stacks-transposed", forward_sample<5, stacked, true>},
};

constexpr NamedSample fastfood_gradients_uses[] = {
    {"n1", gradients_sample<1, square, false>},
    {"n19-small", gradients_sample<19, small, false>},
    {"n32", gradients_sample<32, square, false>},
    {"n32-transposed", gradients_sample<32, square, true>},
    {"n32-dx", gradients_sample<32, square, false, dx>},
    {"n32-ds", gradients_sample<32, square, false, ds>},
    {"n2-dx", gradients_sample<2, square, true, dx>},
    {"n21-dg", gradients_sample<21, rectangular, false, dg>},
    {"n13-db", gradients_sample<13, rectangular, true, db>},
    {"n21-stacks", gradients_sample<21, stacked, false>},
    {"n5-stacks-transposed", gradients_sample<5, stacked, true>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(fastfood, TESSERA_FASTFOOD_CODELETS)

}  // namespace tessera::kernels
