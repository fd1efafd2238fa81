#include "kernels/samples/list.h"
#include "kernels/tile/row_epilogue/codelet.h"

namespace tessera::kernels {
namespace {

/// A run that begins inside a row.
template <Type type, Activation activation, bool has_bias>
Sample sample(uint32_t scale, uint64_t seed) {
  const uint32_t row_elements = 5 * scale + 1;
  const uint32_t first = scale;
  const uint32_t rows = scale == 0 ? 0 : 1 + 3 * scale;
  const uint32_t elements = scale == 0 ? 0 : rows * row_elements - first - 2;
  Sample s(row_epilogue_codelet);
  s.random(Type::f32, has_bias ? rows : 0, has_bias ? 1 : 0, seed).random(type, 1, elements, seed + 1, 4);
  return s.param(static_cast<int64_t>(activation)).param(row_elements).param(first);
}

constexpr NamedSample row_epilogue_uses[] = {{"bias-f32", sample<Type::f32, Activation::none, true>},
                                             {"bias-relu-f16", sample<Type::f16, Activation::relu, true>},
                                             {"gelu-f32", sample<Type::f32, Activation::gelu, false>},
                                             {"silu-f16", sample<Type::f16, Activation::silu, true>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(row_epilogue, TESSERA_ROW_EPILOGUE_CODELETS)

}  // namespace tessera::kernels
