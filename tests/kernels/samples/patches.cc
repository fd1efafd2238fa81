#include <array>
#include <bit>

#include "kernels/map/patches/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

constexpr uint32_t kChannels = 3;

/// Two images; larger ones at larger scales.
Window window_at(uint32_t scale, uint32_t stride, uint32_t dilation) {
  const uint32_t height = 4 * scale + 1, width = 7 * scale + 2;
  Window w{.height = height,
           .width = width,
           .kernel_height = 3,
           .kernel_width = 2,
           .stride_down = stride,
           .stride_across = stride,
           .top = 2,
           .left = 1,
           .dilation_down = dilation,
           .dilation_across = dilation};
  w.out_height = (height + 4 - 2 * dilation - 1) / stride + 1;
  w.out_width = (width + 2 - dilation - 1) / stride + 1;
  return w;
}

using Words = std::array<uint32_t, kWindowWords>;

/// All rows but the first two, from the third.
template <Type type, bool folds, bool features_in_rows, uint32_t stride, uint32_t dilation = 1>
Sample sample(uint32_t scale, uint64_t seed) {
  const Window w = window_at(scale, stride, dilation);
  const uint32_t images = scale == 0 ? 0 : 2, channels = kChannels * std::max(scale, 1U);
  const std::array<uint32_t, 2> image = {images * w.positions(), channels};
  const std::array<uint32_t, 2> seen = {images * w.out_positions(), channels * w.taps()};
  const auto& in = folds ? seen : image;
  const auto& out = folds ? image : seen;
  const auto words = std::bit_cast<Words>(w);
  Sample sample(folds ? fold_codelet : patches_codelet);
  sample.random(type, in[features_in_rows ? 1 : 0], in[features_in_rows ? 0 : 1], seed, 2);
  sample.values(Type::u32, 1, kWindowWords, [&](uint64_t i) { return words[i]; }).packed();
  const uint32_t rows = out[features_in_rows ? 1 : 0], skipped = rows < 3 ? 0 : 2;
  sample.unset(type, rows - skipped, out[features_in_rows ? 0 : 1]);
  return sample.param(channels).param(features_in_rows ? 1 : 0).param(skipped).param(0);
}

constexpr NamedSample patches_uses[] = {{"f32-rows", sample<Type::f32, false, false, 1>},
                                        {"f32-rows-dilated", sample<Type::f32, false, false, 2, 2>},
                                        {"f16-cols", sample<Type::f16, false, true, 1, 2>},
                                        {"f32-cols", sample<Type::f32, false, true, 1>},
                                        {"f32-cols-strided", sample<Type::f32, false, true, 2>}};
constexpr NamedSample fold_uses[] = {{"f32-rows", sample<Type::f32, true, false, 1>},
                                     {"f32-rows-strided", sample<Type::f32, true, false, 2>},
                                     {"bf16-rows", sample<Type::bf16, true, false, 1, 2>},
                                     {"f32-cols", sample<Type::f32, true, true, 1>},
                                     {"f16-cols-strided", sample<Type::f16, true, true, 2>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(patches, TESSERA_PATCHES_CODELETS)

}  // namespace tessera::kernels
