#include "kernels/map/pool/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

/// Images of height × width with `channels`. Windows of 3 × 2 elements, 2 × 1 apart, step by 1 × 2, and reach
/// beyond the edges.
struct Images {
  uint32_t scale;
  bool in_rows;

  static constexpr uint32_t kHeight = 7, kStepAcross = 2, kDown = 4;
  uint32_t images() const { return scale == 0 ? 0 : 2; }
  uint32_t width() const { return 3 * scale + 2; }
  uint32_t channels() const { return 11 * scale; }
  uint32_t across() const { return width(); }

  void add(Sample& sample, Type type, uint32_t rows, uint64_t seed) const {
    const uint32_t pixels = images() * rows;
    in_rows ? sample.random(type, channels(), pixels, seed, 2, true)
            : sample.random(type, pixels, channels(), seed, 2, true);
  }
  void add_result(Sample& sample, Type type, uint32_t pixels) const {
    in_rows ? sample.unset(type, channels(), pixels) : sample.unset(type, pixels, channels());
  }
  /// First elements and counts: rows 2 · i − 1 … 2 · i + 1, and columns j and j + 2, as far as these exist.
  void add_windows(Sample& sample) const {
    const auto rows = [](uint64_t i) {
      return i % 2 == 0 ? (i == 0 ? 0.0 : double(i) - 1) : (i == 1 || i == 7 ? 2.0 : 3.0);
    };
    sample.values(Type::u32, kDown, 2, rows);
    sample.values(Type::u32, across(), 2,
                  [&](uint64_t i) { return i % 2 == 0 ? double(i / 2) : (i / 2 + 2 < width() ? 2.0 : 1.0); });
  }
};

template <Type type, bool in_rows>
Sample largest(uint32_t scale, uint64_t seed) {
  const Images of{scale, in_rows};
  Sample sample(max_pool_codelet);
  of.add(sample, type, Images::kHeight * of.width(), seed);
  of.add_windows(sample);
  // All rows of images but the first.
  const uint32_t rows = of.images() == 0 ? 0 : of.images() * Images::kDown - 1;
  of.add_result(sample, type, rows * of.across());
  return sample.param(Images::kHeight)
      .param(of.width())
      .param(1)
      .param(Images::kStepAcross)
      .param(6)
      .param(in_rows ? 1 : 0)
      .param(1)
      .param(0);
}

template <Type type, bool in_rows>
Sample gradient(uint32_t scale, uint64_t seed) {
  const Images of{scale, in_rows};
  Sample sample(max_pool_gradient_codelet);
  of.add(sample, type, Images::kDown * of.across(), seed);
  of.add(sample, type, Images::kHeight * of.width(), seed + 1);
  of.add_windows(sample);
  of.add_result(sample, type, of.images() * Images::kHeight * of.width());
  return sample.param(Images::kHeight)
      .param(of.width())
      .param(1)
      .param(Images::kStepAcross)
      .param(6)
      .param(in_rows ? 1 : 0);
}

/// Neighbours in windows of up to 3 × 4, or 3 × 1.
template <Type type, bool in_rows, bool is_narrow = false>
Sample weighted(uint32_t scale, uint64_t seed) {
  constexpr uint32_t kOutputs = 3, kTapsDown = 3, kTapsAcross = 4;
  const Images of{scale, in_rows};
  const uint32_t width = of.width() + 2;
  Sample sample(resample_codelet);
  const uint32_t pixels = of.images() * Images::kHeight * width;
  in_rows ? sample.random(type, of.channels(), pixels, seed)
          : sample.random(type, pixels, of.channels(), seed);
  sample.values(Type::u32, kOutputs, 2,
                [](uint64_t i) { return i % 2 == 0 ? double(i) : (i == 3 ? 2.0 : 3.0); });
  const uint32_t outputs = width - 3;
  sample.values(Type::u32, outputs, 2, [](uint64_t i) {
    const uint64_t output = i / 2, count = is_narrow ? output % 2 : 1 + output % 4;
    return double(i % 2 == 0 ? output : count);
  });
  sample.random(Type::f32, kOutputs, kTapsDown, seed + 1).random(Type::f32, outputs, kTapsAcross, seed + 2);
  of.add_result(sample, type, of.images() * kOutputs * outputs);
  const double error = 64 * epsilon_of(Type::f32) + epsilon_of(type);
  return sample.param(Images::kHeight)
      .param(width)
      .param(in_rows ? 1 : 0)
      .param(0)
      .param(0)
      .tolerance({error, error})
      .flops(2.0 * kTapsDown * kTapsAcross * of.images() * kOutputs * outputs * of.channels());
}

constexpr NamedSample max_pool_uses[] = {{"f32-pixels", largest<Type::f32, false>},
                                         {"f16-pixels", largest<Type::f16, false>},
                                         {"f32-channels", largest<Type::f32, true>},
                                         {"bf16-channels", largest<Type::bf16, true>}};
constexpr NamedSample max_pool_gradient_uses[] = {{"f32-pixels", gradient<Type::f32, false>},
                                                  {"f16-pixels", gradient<Type::f16, false>},
                                                  {"f32-channels", gradient<Type::f32, true>},
                                                  {"bf16-channels", gradient<Type::bf16, true>}};
constexpr NamedSample resample_uses[] = {{"f32-pixels", weighted<Type::f32, false>},
                                         {"f16-pixels", weighted<Type::f16, false>},
                                         {"f32-channels", weighted<Type::f32, true>},
                                         {"bf16-channels", weighted<Type::bf16, true>},
                                         {"f32-narrow-channels", weighted<Type::f32, true, true>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(pool, TESSERA_POOL_CODELETS)

}  // namespace tessera::kernels
