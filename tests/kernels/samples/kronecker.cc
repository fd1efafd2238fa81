#include "kernels/host/kronecker/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

using enum Type;

/// What a sample does to a factor: features that x lacks and y drops, and which results are asked for.
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

constexpr NamedSample kronecker_forward_uses[] = {
    {"blocks-n1", forward<kBlocks, Shape{1}>},
    {"blocks-n32", forward<kBlocks, Shape{32}>},
    {"blocks-n128", forward<kBlocks, Shape{128}>},
    {"blocks-n32-transposed", forward<kBlocks, Shape{32, true}>},
    {"blocks-n128-transposed", forward<kBlocks, Shape{128, true}>},
    {"blocks-n3-cut", forward<kBlocks, Shape{3, false, 5, 11}>},
    {"large-n37", forward<kLarge, Shape{37}>},
    {"strided-n1", forward<kStrided, Shape{1}>},
    {"strided-n32", forward<kStrided, Shape{32}>},
    {"strided-n128", forward<kStrided, Shape{128}>},
    {"strided-n32-transposed", forward<kStrided, Shape{32, true}>},
    {"strided-n128-transposed", forward<kStrided, Shape{128, true}>},
    {"strided-n5-cut", forward<kStrided, Shape{5, false, 45, 91}>},
    {"butterfly-n37", forward<kButterfly, Shape{37}>},
    {"butterfly-n37-transposed", forward<kButterfly, Shape{37, true}>},
    {"tall-n19-cut", forward<kTall, Shape{19, false, 4, 40}>},
    {"wide-n50-cut-transposed", forward<kWide, Shape{50, true, 71, 5}>},
    {"odd-n70-cut", forward<kOddStride, Shape{70, false, 25, 30}>},
    {"odd-n1", forward<kOddStride, Shape{1}>},
    {"long-n11", forward<kLongStride, Shape{11}>},
    {"long-n7-cut", forward<kLongStride, Shape{7, false, 75, 40}>},
    {"diagonal-n2", forward<kDiagonal, Shape{2}>},
};

constexpr NamedSample kronecker_gradients_uses[] = {
    {"blocks-n1", gradients<kBlocks, Shape{1}>},
    {"blocks-n32", gradients<kBlocks, Shape{32}>},
    {"blocks-n128", gradients<kBlocks, Shape{128}>},
    {"blocks-n32-transposed", gradients<kBlocks, Shape{32, true}>},
    {"blocks-n128-transposed", gradients<kBlocks, Shape{128, true}>},
    {"blocks-n37-dx", gradients<kBlocks, Shape{37, false, 0, 0, true, false}>},
    {"blocks-n37-dweight", gradients<kBlocks, Shape{37, false, 0, 0, false, true}>},
    {"blocks-n3-cut", gradients<kBlocks, Shape{3, false, 5, 11}>},
    {"large-n37", gradients<kLarge, Shape{37}>},
    {"strided-n1", gradients<kStrided, Shape{1}>},
    {"strided-n32", gradients<kStrided, Shape{32}>},
    {"strided-n128", gradients<kStrided, Shape{128}>},
    {"strided-n32-transposed", gradients<kStrided, Shape{32, true}>},
    {"strided-n128-transposed", gradients<kStrided, Shape{128, true}>},
    {"strided-n5-cut", gradients<kStrided, Shape{5, false, 45, 91}>},
    {"strided-n37-dx", gradients<kStrided, Shape{37, false, 0, 0, true, false}>},
    {"strided-n37-dweight-cut", gradients<kStrided, Shape{37, false, 70, 50, false, true}>},
    {"butterfly-n37", gradients<kButterfly, Shape{37}>},
    {"butterfly-n37-transposed", gradients<kButterfly, Shape{37, true}>},
    {"tall-n19-cut", gradients<kTall, Shape{19, false, 4, 40}>},
    {"wide-n50-cut-transposed", gradients<kWide, Shape{50, true, 71, 5}>},
    {"odd-n70-cut", gradients<kOddStride, Shape{70, false, 25, 30}>},
    {"odd-n1", gradients<kOddStride, Shape{1}>},
    {"long-n11", gradients<kLongStride, Shape{11}>},
    {"long-n7-cut", gradients<kLongStride, Shape{7, false, 75, 40}>},
    {"diagonal-n2", gradients<kDiagonal, Shape{2}>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(kronecker, TESSERA_KRONECKER_CODELETS)

}  // namespace tessera::kernels
