#include "kernels/host/kronecker/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

using enum Type;

/// The changes of a sample to a factor: features that x lacks and y drops, and the requested results.
struct Shape {
  uint32_t samples;
  bool transposed = false;
  uint32_t missing = 0;
  uint32_t dropped = 0;
  bool has_dx = true;
  bool has_dweight = true;
};

/// The stride of a large factor grows, or else the number of blocks.
KroneckerFactor scaled(KroneckerFactor f, uint32_t scale) {
  (f.d > 1 && f.b * f.c > 512 ? f.d : f.a) *= scale;
  return f;
}

uint32_t less(uint32_t features, uint32_t missing) { return features > missing ? features - missing : 0; }

void add_params(Sample& s, const Shape& shape, const KroneckerFactor& f) {
  s.param(shape.transposed).param(f.a).param(f.b).param(f.c).param(f.d);
}

/// Sums of `terms` products below 1 in another order.
Tolerance sum_tolerance(double terms) { return {.absolute = (terms + 4) * epsilon_of(f32)}; }

template <KroneckerFactor factor, Shape shape>
Sample forward(uint32_t scale, uint64_t seed) {
  const KroneckerFactor f = scaled(factor, scale);
  Sample s(kronecker_forward_codelet);
  s.batch(shape.samples, less(f.inputs(), shape.missing), shape.transposed, seed);
  s.random(f32, f.groups(), f.b * f.c, seed + 1).packed();
  s.unset_batch(shape.samples, less(f.outputs(), shape.dropped), shape.transposed);
  s.scratch(kronecker_forward_scratch(f));
  add_params(s, shape, f);
  return s.tolerance(sum_tolerance(f.c)).flops(2.0 * f.groups() * f.b * f.c * shape.samples);
}

template <KroneckerFactor factor, Shape shape>
Sample gradients(uint32_t scale, uint64_t seed) {
  const KroneckerFactor f = scaled(factor, scale);
  const double products = shape.has_dx + shape.has_dweight;
  Sample s(kronecker_gradients_codelet);
  s.batch(shape.samples, less(f.inputs(), shape.missing), shape.transposed, seed);
  s.batch(shape.samples, less(f.outputs(), shape.dropped), shape.transposed, seed + 1);
  s.random(f32, f.groups(), f.b * f.c, seed + 2).packed();
  s.unset_batch(shape.samples, shape.has_dx ? less(f.inputs(), shape.missing) : 0, shape.transposed);
  s.unset(f32, shape.has_dweight ? f.groups() : 0, f.b * f.c).packed();
  s.scratch(kronecker_gradients_scratch(f));
  add_params(s, shape, f);
  return s.tolerance(sum_tolerance(f.b + shape.samples))
      .flops(2.0 * f.groups() * f.b * f.c * shape.samples * products);
}

// Halves of a Monarch layer of 1024 features at scales 32 and 16.
constexpr KroneckerFactor kBlocks = {1, 32, 32, 1}, kStrided = {1, 32, 32, 2};
constexpr KroneckerFactor kButterfly = {1, 2, 2, 8}, kTall = {1, 33, 5, 3}, kWide = {2, 3, 37, 2};
constexpr KroneckerFactor kOddStride = {1, 7, 9, 3}, kLongStride = {1, 7, 9, 31}, kDiagonal = {3, 1, 1, 2},
                          kLarge = {1, 64, 64, 1};

// Y: only for gradients.
#define TESSERA_KRONECKER_USES(X, Y)                                     \
  X("blocks-n1", kBlocks, 1)                                             \
  X("blocks-n32", kBlocks, 32)                                           \
  X("blocks-n128", kBlocks, 128)                                         \
  X("blocks-n32-transposed", kBlocks, 32, true)                          \
  X("blocks-n128-transposed", kBlocks, 128, true)                        \
  Y("blocks-n37-dx", kBlocks, 37, false, 0, 0, true, false)              \
  Y("blocks-n37-dweight", kBlocks, 37, false, 0, 0, false, true)         \
  X("blocks-n3-cut", kBlocks, 3, false, 5, 11)                           \
  X("large-n37", kLarge, 37)                                             \
  X("strided-n1", kStrided, 1)                                           \
  X("strided-n32", kStrided, 32)                                         \
  X("strided-n128", kStrided, 128)                                       \
  X("strided-n32-transposed", kStrided, 32, true)                        \
  X("strided-n128-transposed", kStrided, 128, true)                      \
  X("strided-n5-cut", kStrided, 5, false, 45, 91)                        \
  Y("strided-n37-dx", kStrided, 37, false, 0, 0, true, false)            \
  Y("strided-n37-dweight-cut", kStrided, 37, false, 70, 50, false, true) \
  X("butterfly-n37", kButterfly, 37)                                     \
  X("butterfly-n37-transposed", kButterfly, 37, true)                    \
  X("tall-n19-cut", kTall, 19, false, 4, 40)                             \
  X("wide-n50-cut-transposed", kWide, 50, true, 71, 5)                   \
  X("odd-n70-cut", kOddStride, 70, false, 25, 30)                        \
  X("odd-n1", kOddStride, 1)                                             \
  X("long-n11", kLongStride, 11)                                         \
  X("long-n7-cut", kLongStride, 7, false, 75, 40)                        \
  X("diagonal-n2", kDiagonal, 2)

#define TESSERA_FORWARD(name, factor, ...) {name, forward<factor, Shape{__VA_ARGS__}>},
#define TESSERA_GRADIENTS(name, factor, ...) {name, gradients<factor, Shape{__VA_ARGS__}>},
#define TESSERA_NO_FORWARD(...)
constexpr NamedSample kronecker_forward_uses[] = {
    TESSERA_KRONECKER_USES(TESSERA_FORWARD, TESSERA_NO_FORWARD)};
constexpr NamedSample kronecker_gradients_uses[] = {
    TESSERA_KRONECKER_USES(TESSERA_GRADIENTS, TESSERA_GRADIENTS)};
#undef TESSERA_FORWARD
#undef TESSERA_GRADIENTS

}  // namespace

TESSERA_DEFINE_SAMPLES(kronecker, TESSERA_KRONECKER_CODELETS)

}  // namespace tessera::kernels
