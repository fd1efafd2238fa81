#include <algorithm>

#include "kernels/common/element.h"
#include "kernels/map/softmax/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

constexpr double kRange = 6;
// The SIMD exponential and logarithm are within two units in the last place of a sum of up to `classes`
// terms.
constexpr double kRelative = 64;

Tolerance tolerance_of(Type type) {
  const double epsilon = epsilon_of(Type::f32);
  return {kRelative * epsilon + epsilon_of(type), kRelative * kRange * epsilon};
}

uint32_t classes_of(uint32_t scale) { return scale == 0 ? 0 : 3 + 4 * scale; }
uint32_t columns_of(uint32_t scale) { return 19 * scale; }

/// Every eleventh label is beyond the classes.
Sample& add_labels(Sample& sample, uint32_t rows, uint32_t cols, uint32_t classes) {
  return sample.values(Type::u32, rows, cols, [classes](uint64_t i) {
    return i % 11 == 10 ? double{1} * classes : static_cast<double>((i * 7) % std::max(1U, classes));
  });
}

template <Type type, bool in_rows, bool with_gradient>
Sample cross_entropy_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = in_rows ? classes_of(scale) : columns_of(scale);
  const uint32_t cols = in_rows ? columns_of(scale) : classes_of(scale);
  const uint32_t label_rows = in_rows ? 1 : rows, label_cols = in_rows ? cols : 1;
  Sample sample(with_gradient ? softmax_cross_entropy_codelet : softmax_cross_entropy_loss_codelet);
  sample.random(type, rows, cols, seed, kRange);
  add_labels(sample, label_rows, label_cols, classes_of(scale));
  if (with_gradient) sample.unset(type, rows, cols);
  sample.unset(Type::f32, label_rows, label_cols).param(in_rows ? 1 : 0);
  if (with_gradient) sample.param(param_of(0.125F));
  return sample.tolerance(tolerance_of(type));
}

/// Every third weight is 0.
template <Type type, bool in_rows>
Sample weighted_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = in_rows ? classes_of(scale) : columns_of(scale);
  const uint32_t cols = in_rows ? columns_of(scale) : classes_of(scale);
  const uint32_t label_rows = in_rows ? 1 : rows, label_cols = in_rows ? cols : 1;
  Sample sample(weighted_cross_entropy_codelet);
  sample.random(type, rows, cols, seed, kRange);
  add_labels(sample, label_rows, label_cols, classes_of(scale));
  sample.values(Type::f32, label_rows, label_cols,
                [](uint64_t i) { return 0.25 * static_cast<double>(i % 3); });
  sample.unset(type, rows, cols).unset(Type::f32, label_rows, label_cols).param(in_rows ? 1 : 0);
  return sample.tolerance(tolerance_of(type));
}

// With infinities and NaN.
template <Type type, bool over_rows>
Sample softmax_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = over_rows ? classes_of(scale) : columns_of(scale);
  const uint32_t cols = over_rows ? columns_of(scale) : classes_of(scale);
  Sample sample(softmax_codelet);
  sample.random(type, rows, cols, seed, kRange, true).unset(type, rows, cols);
  return sample.param(over_rows ? 1 : 0).tolerance(tolerance_of(type));
}

constexpr NamedSample kSoftmax[] = {{"rows-f32", softmax_sample<Type::f32, true>},
                                    {"rows-f16", softmax_sample<Type::f16, true>},
                                    {"cols-f32", softmax_sample<Type::f32, false>},
                                    {"cols-bf16", softmax_sample<Type::bf16, false>}};

template <bool with_gradient>
constexpr NamedSample kCrossEntropy[] = {
    {"f32", cross_entropy_sample<Type::f32, true, with_gradient>},
    {"f16", cross_entropy_sample<Type::f16, true, with_gradient>},
    {"f32-classes-in-columns", cross_entropy_sample<Type::f32, false, with_gradient>},
    {"bf16-classes-in-columns", cross_entropy_sample<Type::bf16, false, with_gradient>}};

constexpr NamedSample kWeighted[] = {{"f32", weighted_sample<Type::f32, true>},
                                     {"f16", weighted_sample<Type::f16, true>},
                                     {"f32-classes-in-columns", weighted_sample<Type::f32, false>},
                                     {"bf16-classes-in-columns", weighted_sample<Type::bf16, false>}};

}  // namespace

std::span<const CodeletSamples> softmax_samples() {
  static constexpr CodeletSamples kAll[] = {{softmax_codelet, kSoftmax},
                                            {softmax_cross_entropy_codelet, kCrossEntropy<true>},
                                            {weighted_cross_entropy_codelet, kWeighted},
                                            {softmax_cross_entropy_loss_codelet, kCrossEntropy<false>}};
  return kAll;
}

}  // namespace tessera::kernels
