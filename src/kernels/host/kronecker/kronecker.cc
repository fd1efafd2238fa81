#include <algorithm>

#include "base/simd.h"
#include "kernels/host/kronecker/codelet.h"
#include "kernels/host/kronecker/layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/kronecker/kronecker.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/host/kronecker/product-inl.h"
#include "kernels/host/kronecker/strided-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
// Whether the features of a group can be copied as vectors, or are few.
inline bool suits_kronecker(const Samples& x, const KroneckerFactor& f) {
  return x.count <= kFewSamples || is_in_columns(x) || (is_in_rows(x) && f.d == 1);
}

// Calls visit(tile, whether it is the first) for the samples in tiles to be copied as columns.
template <class Visit>
void each_kronecker_tile(uint32_t samples, const Visit& visit) {
  for (uint32_t begin = 0; begin < samples; begin += kKroneckerLanes) {
    const uint32_t count = std::min(kKroneckerLanes, samples - begin);
    visit(LaneTile{begin, count, round_up(count, static_cast<uint32_t>(kLanes))});
  }
}

inline Samples kronecker_columns(const LaneTile& tile, uint32_t features, float* columns) {
  return {columns, tile.count, features, 1, tile.lanes};
}

void run_kronecker_forward(const program::Vertex& v) {
  using namespace kronecker_forward_field;
  const bool transposed = v.params[kronecker_param::transposed] != 0;
  const KroneckerFactor f = factor_of(v.params);
  const Samples in = samples_of(v.fields[x], transposed), out = samples_of(v.fields[y], transposed);
  auto* memory = v.fields[scratch].as<float>();
  if (suits_strided(f, in, out))
    return KroneckerStrided(f, memory).forward(v.fields[weight].as<float>(), in, out);
  const KroneckerForward product(f, v.fields[weight].as<float>(), memory);
  if (suits_kronecker(in, f) && suits_kronecker(out, f)) return product.run(in, out);
  const KroneckerColumns at(f);
  each_kronecker_tile(out.count, [&](const LaneTile& tile) {
    const Samples from = kronecker_columns(tile, in.features, memory + at.x);
    const Samples to = kronecker_columns(tile, out.features, memory + at.y);
    load_samples(in, tile, in.features, from.data);
    product.run(from, to);
    store_samples(to.data, tile, out);
  });
}

void run_kronecker_gradients(const program::Vertex& v) {
  using namespace kronecker_gradients_field;
  const bool transposed = v.params[kronecker_param::transposed] != 0;
  const KroneckerFactor f = factor_of(v.params);
  const Samples in = samples_of(v.fields[x], transposed), gradient = samples_of(v.fields[dy], transposed);
  Samples result = samples_of(v.fields[dx], transposed);
  if (v.fields[dx].empty()) result.data = nullptr;
  float* dw = v.fields[dweight].empty() ? nullptr : v.fields[dweight].as<float>();
  if (dw != nullptr && gradient.count == 0) std::fill_n(dw, size_t{f.groups()} * f.b * f.c, 0.0F);
  auto* memory = v.fields[scratch].as<float>();
  if (suits_strided(f, in, gradient) && (result.data == nullptr || is_in_rows(result))) {
    const KroneckerStrided strided(f, memory);
    if (result.data != nullptr) strided.input_gradient(v.fields[weight].as<float>(), gradient, result);
    if (dw != nullptr) strided.weight_gradient(in, gradient, dw);
    return;
  }
  const KroneckerGradients product(f, v.fields[weight].as<float>(), dw, memory);
  if (suits_kronecker(in, f) && suits_kronecker(gradient, f) &&
      (result.data == nullptr || suits_kronecker(result, f)))
    return product.run(in, gradient, result, false);
  const KroneckerColumns at(f);
  each_kronecker_tile(gradient.count, [&](const LaneTile& tile) {
    const Samples x_columns = kronecker_columns(tile, in.features, memory + at.x);
    const Samples dy_columns = kronecker_columns(tile, gradient.features, memory + at.y);
    Samples dx_columns = kronecker_columns(tile, result.features, memory + at.dx);
    if (result.data == nullptr) dx_columns.data = nullptr;
    load_samples(in, tile, in.features, x_columns.data);
    load_samples(gradient, tile, gradient.features, dy_columns.data);
    product.run(x_columns, dy_columns, dx_columns, tile.begin > 0);
    if (result.data != nullptr) store_samples(dx_columns.data, tile, result);
  });
}
#else
TESSERA_KRONECKER_CODELETS(TESSERA_RUN_REFERENCE)
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_KRONECKER_CODELETS(TESSERA_EXPORT_RUN)

void kronecker_forward_simd(const program::Vertex& v) { HWY_DYNAMIC_DISPATCH(run_kronecker_forward)(v); }
void kronecker_gradients_simd(const program::Vertex& v) { HWY_DYNAMIC_DISPATCH(run_kronecker_gradients)(v); }

}  // namespace tessera::kernels
#endif
