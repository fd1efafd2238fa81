#include "kernels/common/element_order.h"
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

// The same words, and one rounding. Near 2^34, where a block's number takes more than 32 bits.
template <Type from, Type to>
Sample stochastic(uint32_t scale, uint64_t seed, ElementOrder order, uint32_t row, uint32_t col) {
  const uint32_t rows = 5 * scale, cols = 41 * scale;
  Sample sample(stochastic_cast_codelet);
  sample.random(from, rows, cols, seed, 2, true).values(Type::u32, 1, 3, [](uint64_t i) { return 1 + i; });
  sample.unset(to, rows, cols).param(static_cast<int64_t>(0x9A3C5E0712345678U + seed)).param(3);
  sample.param(order.row_step).param(order.group).param(order.group_step).param(order.col_step);
  return sample.param(row).param(col);
}

template <Type from, Type to>
Sample by_rows(uint32_t scale, uint64_t seed) {
  return stochastic<from, to>(scale, seed, ElementOrder::strided(4095 + 41 * scale, 1), 1U << 22, 11);
}
template <Type from, Type to>
Sample by_columns(uint32_t scale, uint64_t seed) {
  return stochastic<from, to>(scale, seed, ElementOrder::strided(1, 4095 + 5 * scale), 11, 1U << 22);
}
template <Type from, Type to>
Sample in_panels(uint32_t scale, uint64_t seed) {
  const uint32_t inner = 7 + 3 * scale;
  return stochastic<from, to>(scale, seed, {16 * inner, 16, 1, inner}, 3, 5);
}
template <Type from, Type to>
Sample scattered(uint32_t scale, uint64_t seed) {
  return stochastic<from, to>(scale, seed, ElementOrder::strided(3, 7), 2, 1);
}
/// A whole matrix.
template <Type from, Type to>
Sample whole(uint32_t scale, uint64_t seed) {
  return stochastic<from, to>(scale, seed, ElementOrder::strided(41 * scale, 1), 0, 0);
}

constexpr NamedSample stochastic_cast_uses[] = {
    {"f32-f16", by_rows<Type::f32, Type::f16>},
    {"f32-bf16", by_rows<Type::f32, Type::bf16>},
    {"bf16-f16", by_rows<Type::bf16, Type::f16>},
    {"f16-bf16", by_rows<Type::f16, Type::bf16>},
    {"f32-f16-transposed", by_columns<Type::f32, Type::f16>},
    {"f32-bf16-panels", in_panels<Type::f32, Type::bf16>},
    {"f32-f16-panels", in_panels<Type::f32, Type::f16>},
    {"f32-bf16-scattered", scattered<Type::f32, Type::bf16>},
    {"f32-bf16-whole", whole<Type::f32, Type::bf16>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(cast, TESSERA_CAST_CODELETS)

}  // namespace tessera::kernels
