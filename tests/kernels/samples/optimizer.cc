#include "kernels/common/element.h"
#include "kernels/map/optimizer/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

constexpr double kLr = 0.125;
constexpr float kDecay = 0.0625F;
constexpr float kMomentum = 0.875F;

uint32_t rows_of(uint32_t scale) { return 3 * scale; }
uint32_t cols_of(uint32_t scale) { return 29 * scale; }

Sample& add_scalar(Sample& sample, Type type, double value) {
  return sample.values(type, 1, 1, [value](uint64_t) { return value; });
}

// A fused multiply-add, or a product rounded before the sum; both may round to neighbouring numbers.
Tolerance tolerance_of(Type weight) { return {epsilon_of(weight), 8 * epsilon_of(Type::f32)}; }

template <Type weight, Type gradient>
Sample sgd_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = rows_of(scale), cols = cols_of(scale);
  Sample sample(sgd_codelet);
  sample.random(gradient, rows, cols, seed);
  add_scalar(sample, Type::f32, kLr).random(weight, rows, cols, seed + 1).param(param_of(kDecay));
  return sample.tolerance(tolerance_of(weight)).flops(4.0 * rows * cols);
}

template <Type weight, Type gradient, bool nesterov = false, bool lr_in_velocity = false>
Sample momentum_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = rows_of(scale), cols = cols_of(scale);
  Sample sample(momentum_codelet);
  sample.random(gradient, rows, cols, seed);
  add_scalar(sample, Type::f32, kLr);
  sample.random(Type::f32, rows, cols, seed + 1).random(weight, rows, cols, seed + 2);
  sample.param(param_of(kDecay)).param(param_of(kMomentum)).param(nesterov ? 1 : 0);
  sample.param(lr_in_velocity ? 1 : 0);
  return sample.tolerance(tolerance_of(weight)).flops((nesterov ? 8.0 : 6.0) * rows * cols);
}

// Second moments well above 0, where a step's direction does not magnify rounding.
template <Type weight, Type gradient, bool decoupled = false, bool bias_correction = true>
Sample adam_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = rows_of(scale), cols = cols_of(scale);
  Sample sample(adam_codelet);
  sample.random(gradient, rows, cols, seed);
  add_scalar(add_scalar(sample, Type::f32, kLr), Type::u32, 3).random(Type::f32, rows, cols, seed + 1);
  sample.values(Type::f32, rows, cols, [](uint64_t i) { return 0.25 + static_cast<double>(i % 17) / 16; });
  sample.random(weight, rows, cols, seed + 2).param(param_of(kDecay));
  sample.param(param_of(0.9F)).param(param_of(0.999F)).param(param_of(1e-8F)).param(decoupled ? 1 : 0);
  sample.param(bias_correction ? 1 : 0);
  return sample.tolerance(tolerance_of(weight)).flops(14.0 * rows * cols);
}

template <Type weight, Type gradient, bool bias_correction = true, bool left_out = false>
Sample adam_direction_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = rows_of(scale), cols = cols_of(scale);
  Sample sample(adam_direction_codelet);
  sample.random(gradient, rows, cols, seed);
  add_scalar(sample, Type::f32, left_out ? NAN : 0.01);
  add_scalar(sample, Type::u32, 3).random(weight, rows, cols, seed + 2);
  sample.random(Type::f32, rows, cols, seed + 1);
  sample.values(Type::f32, rows, cols, [](uint64_t i) { return 0.25 + static_cast<double>(i % 17) / 16; });
  sample.unset(Type::f32, rows, cols).param(param_of(kDecay));
  sample.param(param_of(0.9F)).param(param_of(0.999F)).param(param_of(1e-8F)).param(bias_correction ? 1 : 0);
  return sample.tolerance(tolerance_of(Type::f32)).flops(14.0 * rows * cols);
}

constexpr NamedSample sgd_uses[] = {{"f32-f32", sgd_sample<Type::f32, Type::f32>},
                                    {"f16-f16", sgd_sample<Type::f16, Type::f16>},
                                    {"bf16-f32", sgd_sample<Type::bf16, Type::f32>}};
constexpr NamedSample momentum_uses[] = {{"f32-f32", momentum_sample<Type::f32, Type::f32>},
                                         {"f32-bf16", momentum_sample<Type::f32, Type::bf16>},
                                         {"f16-f16", momentum_sample<Type::f16, Type::f16>},
                                         {"f32-nesterov", momentum_sample<Type::f32, Type::f32, true>},
                                         {"f32-lars", momentum_sample<Type::f32, Type::f32, false, true>}};
constexpr NamedSample adam_uses[] = {{"f32-f32", adam_sample<Type::f32, Type::f32>},
                                     {"f32-f16", adam_sample<Type::f32, Type::f16>},
                                     {"bf16-bf16", adam_sample<Type::bf16, Type::bf16>},
                                     {"f32-decoupled", adam_sample<Type::f32, Type::f32, true>},
                                     {"f32-uncorrected", adam_sample<Type::f32, Type::f32, true, false>}};
constexpr NamedSample adam_direction_uses[] = {
    {"f32-f32", adam_direction_sample<Type::f32, Type::f32>},
    {"f16-f32", adam_direction_sample<Type::f16, Type::f32>},
    {"bf16-bf16", adam_direction_sample<Type::bf16, Type::bf16>},
    {"f32-uncorrected", adam_direction_sample<Type::f32, Type::f32, false>},
    {"f32-left-out", adam_direction_sample<Type::f32, Type::f32, true, true>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(optimizer, TESSERA_OPTIMIZER_CODELETS)

}  // namespace tessera::kernels
