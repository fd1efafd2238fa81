#include "kernels/map/optimizer/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

// A fused multiply-add, or a product rounded before the sum.
template <Type type>
Sample sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 3 * scale;
  const uint32_t cols = 29 * scale;
  Sample sample(momentum_codelet);
  sample.random(type, rows, cols, seed);
  sample.values(Type::f32, 1, 2, [](uint64_t i) { return i == 0 ? 0.125 : 0.875; });
  sample.random(type, rows, cols, seed + 1).random(type, rows, cols, seed + 2);
  return sample.tolerance({epsilon_of(type), 4 * epsilon_of(Type::f32)}).flops(4.0 * rows * cols);
}

constexpr NamedSample kSamples[] = {{"f32", sample<Type::f32>}, {"f16", sample<Type::f16>}};

}  // namespace

std::span<const CodeletSamples> optimizer_samples() {
  static constexpr CodeletSamples kAll[] = {{momentum_codelet, kSamples}};
  return kAll;
}

}  // namespace tessera::kernels
