#include "kernels/common/element.h"
#include "kernels/map/dropout/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

// A box of a larger matrix, or of its transpose: the same random numbers, one division.
template <Type type, bool transposed>
Sample sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 5 * scale, cols = 41 * scale;
  Sample sample(dropout_codelet);
  sample.random(type, rows, cols, seed, 1, true).values(Type::u32, 1, 1, [](uint64_t) { return 17; });
  sample.unset(type, rows, cols).param(static_cast<int64_t>(0x9A3C5E0712345678U + seed)).param(3);
  sample.param(param_of(0.625F));
  // Near 2^34, where a block's number takes more than 32 bits.
  const uint32_t row = transposed ? 11 : 1U << 22, col = transposed ? 1U << 22 : 11;
  const uint32_t row_step = transposed ? 1 : 4095 + cols, col_step = transposed ? 4095 + rows : 1;
  return sample.param(row_step).param(col_step).param(row).param(col);
}

/// A whole matrix in a sub-stream.
Sample whole(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 5 * scale, cols = 41 * scale;
  Sample sample(dropout_codelet);
  sample.random(Type::f32, rows, cols, seed, 1, true).values(Type::u32, 1, 3, [](uint64_t i) {
    return 1 + i;
  });
  sample.unset(Type::f32, rows, cols).param(7).param(0).param(param_of(0.5F));
  return sample.param(cols).param(1).param(0).param(0);
}

constexpr NamedSample dropout_uses[] = {
    {"f32", sample<Type::f32, false>},           {"f16", sample<Type::f16, false>},
    {"bf16", sample<Type::bf16, false>},         {"f32-transposed", sample<Type::f32, true>},
    {"f16-transposed", sample<Type::f16, true>}, {"f32-whole", whole}};

}  // namespace

TESSERA_DEFINE_SAMPLES(dropout, TESSERA_DROPOUT_CODELETS)

}  // namespace tessera::kernels
