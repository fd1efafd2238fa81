#include "kernels/common/element.h"
#include "kernels/map/softmax/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

constexpr double kRange = 6;
// The SIMD exponential and logarithm are within two units in the last place of a sum of up to `classes`
// terms.
constexpr double kRelative = 64;

/// Every eleventh label is beyond the classes.
Sample sample(uint32_t scale, uint64_t seed) {
  const uint32_t classes = scale == 0 ? 0 : 3 + 4 * scale;
  const uint32_t cols = 19 * scale;
  Sample sample(softmax_cross_entropy_codelet);
  sample.random(Type::f32, classes, cols, seed, kRange);
  sample.values(Type::u32, 1, cols, [&](uint64_t i) {
    return i % 11 == 10 ? double{1} * classes : static_cast<double>((i * 7) % std::max(1U, classes));
  });
  sample.unset(Type::f32, classes, cols).unset(Type::f32, 1, cols).param(param_of(0.125F));
  const double epsilon = epsilon_of(Type::f32);
  return sample.tolerance({kRelative * epsilon, kRelative * kRange * epsilon});
}

constexpr NamedSample kSamples[] = {{"f32", sample}};

}  // namespace

std::span<const CodeletSamples> softmax_samples() {
  static constexpr CodeletSamples kAll[] = {{softmax_cross_entropy_codelet, kSamples}};
  return kAll;
}

}  // namespace tessera::kernels
