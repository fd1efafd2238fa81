#include "kernels/common/element.h"
#include "kernels/map/depthwise/codelet.h"
#include "kernels/samples/list.h"
#include "kernels/samples/windows.h"

namespace tessera::kernels {
namespace {

/// All rows but the first two, from the third.
template <Type type, bool features_in_rows, bool strided, bool has_bias>
Sample sample(uint32_t scale, uint64_t seed) {
  const Window w = sample_window(strided);
  const uint32_t channels = 9 * scale, images = scale == 0 ? 0 : kSampleImages;
  const uint32_t in = images * w.positions(), out = images * w.out_positions();
  Sample s(depthwise_codelet);
  s.random(type, features_in_rows ? channels : in, features_in_rows ? in : channels, seed);
  s.random(type, channels, w.taps(), seed + 1).random(type, has_bias ? 1 : 0, channels, seed + 2);
  add_window(s, true, strided);
  const uint32_t rows = features_in_rows ? channels : out, skipped = rows < 3 ? 0 : 2;
  s.unset(type, rows - skipped, features_in_rows ? out : channels);
  s.param(param_of(-1.5F)).param(param_of(2.0F)).param(features_in_rows ? 1 : 0).param(skipped).param(0);
  return s.tolerance(product_tolerance(type, type, w.taps() + 1)).flops(2.0 * w.taps() * out * channels);
}

constexpr NamedSample depthwise_uses[] = {{"f32-rows", sample<Type::f32, false, false, true>},
                                          {"f16-rows-strided", sample<Type::f16, false, true, false>},
                                          {"f32-cols", sample<Type::f32, true, false, true>},
                                          {"f32-cols-strided", sample<Type::f32, true, true, false>},
                                          {"bf16-cols", sample<Type::bf16, true, false, true>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(depthwise, TESSERA_DEPTHWISE_CODELETS)

}  // namespace tessera::kernels
