#include "kernels/common/element.h"
#include "kernels/map/layer_norm/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

constexpr float kEpsilon = 1e-3F;
// Sums of up to some hundred terms in FP32.
constexpr double kSumError = 256;

uint32_t features_of(uint32_t scale) { return 7 * scale + (scale > 0 ? 2 : 0); }
uint32_t samples_of(uint32_t scale) { return 19 * scale; }

Tolerance tolerance_of(Type type) {
  const double epsilon = kSumError * epsilon_of(Type::f32);
  return {epsilon + epsilon_of(type), epsilon + epsilon_of(type)};
}

/// Matrices and vectors in one orientation.
template <Type type, bool in_rows>
struct Fields {
  Sample sample;
  uint32_t scale;
  uint64_t seed;

  uint32_t rows() const { return in_rows ? features_of(scale) : samples_of(scale); }
  uint32_t cols() const { return in_rows ? samples_of(scale) : features_of(scale); }
  Fields& matrix() { return sample.random(type, rows(), cols(), ++seed, 2), *this; }
  Fields& result() { return sample.unset(type, rows(), cols()), *this; }
  Fields& by_feature(bool is_result = false) {
    const uint32_t r = in_rows ? rows() : 1, c = in_rows ? 1 : cols();
    return is_result ? sample.unset(type, r, c) : sample.random(type, r, c, ++seed), *this;
  }
  Fields& by_sample(bool is_result = false) {
    const uint32_t r = in_rows ? 1 : rows(), c = in_rows ? cols() : 1;
    return is_result ? sample.unset(Type::f32, r, c) : sample.random(Type::f32, r, c, ++seed), *this;
  }
  Sample done() { return sample.param(in_rows ? 1 : 0).tolerance(tolerance_of(type)); }
};

template <Type type, bool in_rows, bool centred = true>
Sample forward(uint32_t scale, uint64_t seed) {
  Fields<type, in_rows> f{Sample(layer_norm_codelet), scale, seed};
  f.matrix().by_feature().by_feature().by_sample(true).by_sample(true).result();
  return f.done().param(param_of(kEpsilon)).param(centred ? 1 : 0);
}

template <Type type, bool in_rows, bool centred = true>
Sample input_gradient(uint32_t scale, uint64_t seed) {
  Fields<type, in_rows> f{Sample(layer_norm_input_gradient_codelet), scale, seed};
  return f.matrix().matrix().by_sample().by_sample().by_feature().result().done().param(centred ? 1 : 0);
}

template <Type type, bool in_rows>
Sample weight_gradient(uint32_t scale, uint64_t seed) {
  Fields<type, in_rows> f{Sample(layer_norm_weight_gradient_codelet), scale, seed};
  return f.matrix().matrix().by_sample().by_sample().by_feature(true).by_feature(true).done();
}

constexpr NamedSample layer_norm_uses[] = {{"f32-rows", forward<Type::f32, true>},
                                           {"f16-rows", forward<Type::f16, true>},
                                           {"f32-cols", forward<Type::f32, false>},
                                           {"bf16-cols", forward<Type::bf16, false>},
                                           {"rms-f32-rows", forward<Type::f32, true, false>},
                                           {"rms-f32-cols", forward<Type::f32, false, false>}};
constexpr NamedSample layer_norm_input_gradient_uses[] = {
    {"f32-rows", input_gradient<Type::f32, true>},
    {"f16-rows", input_gradient<Type::f16, true>},
    {"f32-cols", input_gradient<Type::f32, false>},
    {"bf16-cols", input_gradient<Type::bf16, false>},
    {"rms-f32-rows", input_gradient<Type::f32, true, false>},
    {"rms-f32-cols", input_gradient<Type::f32, false, false>}};
constexpr NamedSample layer_norm_weight_gradient_uses[] = {{"f32-rows", weight_gradient<Type::f32, true>},
                                                           {"f16-rows", weight_gradient<Type::f16, true>},
                                                           {"f32-cols", weight_gradient<Type::f32, false>},
                                                           {"bf16-cols", weight_gradient<Type::bf16, false>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(layer_norm, TESSERA_LAYER_NORM_CODELETS)

}  // namespace tessera::kernels
