#include "kernels/map/cast/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

// Conversion is exact or rounds one number once: the same in both forms.
template <Type from, Type to>
Sample sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 3 * scale;
  const uint32_t cols = 41 * scale;
  Sample sample(cast_codelet);
  return sample.random(from, rows, cols, seed, 2, true).unset(to, rows, cols);
}

template <Type from, Type to>
Sample integer_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 3 * scale;
  const uint32_t cols = 41 * scale;
  Sample sample(cast_codelet);
  const double least = from == Type::i32 ? -35000 : 0;
  const auto value_at = [=](uint64_t i) { return static_cast<double>((i + seed) * 977 % 70000) + least; };
  return sample.values(from, rows, cols, value_at).unset(to, rows, cols);
}

constexpr NamedSample cast_uses[] = {
    {"f32-f16", sample<Type::f32, Type::f16>},         {"f32-bf16", sample<Type::f32, Type::bf16>},
    {"f16-f32", sample<Type::f16, Type::f32>},         {"bf16-f32", sample<Type::bf16, Type::f32>},
    {"f16-bf16", sample<Type::f16, Type::bf16>},       {"bf16-f16", sample<Type::bf16, Type::f16>},
    {"f32-u32", sample<Type::f32, Type::u32>},         {"u32-f16", integer_sample<Type::u32, Type::f16>},
    {"f32-i32", sample<Type::f32, Type::i32>},         {"i32-f32", integer_sample<Type::i32, Type::f32>},
    {"i32-u32", integer_sample<Type::i32, Type::u32>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(cast, TESSERA_CAST_CODELETS)

}  // namespace tessera::kernels
