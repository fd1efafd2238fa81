#include "kernels/samples/list.h"
#include "kernels/tile/scalar_product/codelet.h"

namespace tessera::kernels {
namespace {

Sample dot(uint32_t scale, uint64_t seed) {
  const uint32_t length = 7 * scale;
  Sample sample(scalar_dot_codelet);
  sample.random(Type::f32, 1, length, seed).random(Type::f32, 1, length, seed + 1).unset(Type::f32, 1, 1);
  return sample.flops(2.0 * length);
}

template <bool adds>
Sample block(uint32_t scale, uint64_t seed) {
  const uint32_t m = 2 * scale, k = 5 * scale, n = 3 * scale;
  Sample sample(scalar_block_codelet);
  sample.random(Type::f32, m, k, seed).random(Type::f32, k, n, seed + 1).random(Type::f32, m, n, seed + 2);
  return sample.param(adds).flops(2.0 * m * k * n);
}

constexpr NamedSample scalar_dot_uses[] = {{"f32", dot}};
constexpr NamedSample scalar_block_uses[] = {{"f32", block<false>}, {"f32-adds", block<true>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(scalar_product, TESSERA_SCALAR_PRODUCT_CODELETS)

}  // namespace tessera::kernels
