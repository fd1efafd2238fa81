#include "kernels/samples/list.h"
#include "kernels/tile/kronecker/codelet.h"

namespace tessera::kernels {
namespace {

using enum Type;

constexpr uint32_t kColumns = 9;

/// Groups of `outputs` × `terms` weights; or products with their transposes, for some of the terms.
template <Type in, Type out, uint32_t outputs, uint32_t terms, bool transposed = false>
Sample product(uint32_t scale, uint64_t seed) {
  constexpr uint32_t kRows = transposed ? (terms + 1) / 2 : outputs, kInner = transposed ? outputs : terms;
  constexpr uint32_t kFirst = transposed ? terms / 2 : 0;
  Sample s(kronecker_product_codelet);
  s.random(in, 1, scale * outputs * terms, seed).random(in, scale * kInner, kColumns, seed + 1);
  s.unset(out, scale * kRows, kColumns).param(kRows).param(kInner);
  s.param(transposed ? 1 : terms).param(transposed ? terms : 1).param(kFirst);
  return s.tolerance(product_tolerance(in, out, kInner)).flops(2.0 * scale * kRows * kInner * kColumns);
}

template <Type in, Type out, uint32_t outputs, uint32_t inputs>
Sample weight_gradient(uint32_t scale, uint64_t seed) {
  Sample s(kronecker_weight_gradient_codelet);
  s.random(in, scale * outputs, kColumns, seed).random(in, scale * inputs, kColumns, seed + 1);
  s.unset(out, 1, scale * outputs * inputs).param(outputs).param(inputs);
  const Tolerance rounding{.relative = out == f32 ? 0 : epsilon_of(out),
                           .absolute = 2 * kColumns * epsilon_of(f32)};
  return s.tolerance(rounding).flops(2.0 * scale * outputs * inputs * kColumns);
}

template <Type type, uint32_t levels, bool decreasing = false, uint32_t width = 1>
Sample pass(uint32_t scale, uint64_t seed) {
  const uint32_t features = scale * width << levels;
  Sample s(butterfly_pass_codelet);
  s.random(type, 1, scale * butterfly_weights(levels, width), seed)
      .random(type, features, kColumns, seed + 1);
  return s.unset(type, features, kColumns).param(levels).param(decreasing).param(width);
}

template <Type type, uint32_t levels, bool decreasing = false, uint32_t width = 1>
Sample pass_gradients(uint32_t scale, uint64_t seed) {
  const uint32_t features = scale * width << levels;
  Sample s(butterfly_pass_gradients_codelet);
  s.random(type, 1, scale * butterfly_weights(levels, width), seed)
      .random(type, features, kColumns, seed + 1);
  s.random(type, features, kColumns, seed + 2).unset(type, features, kColumns);
  s.unset(type, 1, scale * butterfly_weights(levels, width)).unset(type, (levels - 1) * features, kColumns);
  return s.param(levels).param(decreasing).param(width);
}

constexpr NamedSample kronecker_product_uses[] = {
    {"f32-16x16", product<f32, f32, 16, 16>},
    {"f16-16x16", product<f16, f16, 16, 16>},
    {"f16-f32-5x7", product<f16, f32, 5, 7>},
    {"f32-2x2", product<f32, f32, 2, 2>},
    {"f32-5x7-transposed", product<f32, f32, 5, 7, true>},
    {"f16-16x16-transposed", product<f16, f16, 16, 16, true>},
};

constexpr NamedSample kronecker_weight_gradient_uses[] = {
    {"f32-16x16", weight_gradient<f32, f32, 16, 16>},
    {"f16-5x7", weight_gradient<f16, f16, 5, 7>},
    {"f16-f32-2x2", weight_gradient<f16, f32, 2, 2>},
};

constexpr NamedSample butterfly_pass_uses[] = {
    {"f32-1", pass<f32, 1>},
    {"f32-4", pass<f32, 4>},
    {"f16-3-decreasing", pass<f16, 3, true>},
    {"f32-3-complex", pass<f32, 3, false, 2>},
};

constexpr NamedSample butterfly_pass_gradients_uses[] = {
    {"f32-1", pass_gradients<f32, 1>},
    {"f32-4", pass_gradients<f32, 4>},
    {"f16-3-decreasing", pass_gradients<f16, 3, true>},
    {"f32-3-complex", pass_gradients<f32, 3, false, 2>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(tile_kronecker, TESSERA_TILE_KRONECKER_CODELETS)

}  // namespace tessera::kernels
