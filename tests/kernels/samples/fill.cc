#include "base/integer_types.h"
#include "kernels/common/element.h"
#include "kernels/map/fill/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

template <Type type>
Sample sample(uint32_t scale, uint64_t) {
  Sample sample(fill_codelet);
  return sample.unset(type, 3 * scale, 41 * scale).param(param_of(!is_integer(type) ? 0.1F : 200.0F));
}

constexpr NamedSample fill_uses[] = {{"f32", sample<Type::f32>},   {"f16", sample<Type::f16>},
                                     {"bf16", sample<Type::bf16>}, {"u8", sample<Type::u8>},
                                     {"u32", sample<Type::u32>},   {"f64", sample<Type::f64>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(fill, TESSERA_FILL_CODELETS)

}  // namespace tessera::kernels
