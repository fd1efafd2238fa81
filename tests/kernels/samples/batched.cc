#include "kernels/product/batched/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

/// Multiplies matrices of m × k and k × n; the vertex begins in the middle of the first, and has all columns
/// from the third on.
template <Type type, bool transpose_a, bool transpose_b>
Sample product(uint32_t scale, uint64_t seed) {
  const uint32_t m = 5 + 3 * scale, k = scale == 0 ? 1 : 9 * scale - 2, n = 4 + 7 * scale;
  const uint32_t matrices = scale == 0 ? 0 : 2 + scale % 2, first = matrices == 0 ? 0 : m / 2, col = 2;
  const uint32_t rows = matrices * m - (matrices == 0 ? 0 : first + 1), cols = n - col;
  Sample s(batched_product_codelet);
  transpose_a ? s.random(type, matrices * k, m, seed) : s.random(type, rows, k, seed);
  transpose_b ? s.random(type, matrices * n, k, seed + 1) : s.random(type, matrices * k, cols, seed + 1);
  s.unset(type, rows, cols);
  s.param(m).param(n).param(transpose_a ? 1 : 0).param(transpose_b ? 1 : 0).param(3 * m + first).param(col);
  const double rounding = type == Type::f32 ? 0 : epsilon_of(type);
  return s.tolerance({rounding, (k + 4) * epsilon_of(Type::f32) + rounding * 0x1p-10})
      .flops(2.0 * rows * cols * k);
}

constexpr NamedSample batched_product_uses[] = {
    {"f32", product<Type::f32, false, false>},  {"f32-b", product<Type::f32, false, true>},
    {"f32-a", product<Type::f32, true, false>}, {"f16-ab", product<Type::f16, true, true>},
    {"f16", product<Type::f16, false, false>},  {"bf16-b", product<Type::bf16, false, true>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(batched, TESSERA_BATCHED_CODELETS)

}  // namespace tessera::kernels
