#include <stdexcept>

#include "kernels/samples/list.h"
#include "kernels/tile/rounded_product/codelet.h"

namespace tessera::kernels {
namespace {

/// The result of a product, as a sample has it.
const Sample::Field& result_of(const Sample& sample) {
  for (size_t f = 0; f < sample.fields().size(); ++f)
    if (sample.codelet().fields[f].access != program::Access::in) return sample.fields()[f];
  throw std::logic_error("a product without a result");
}

/// The sample at a position among the samples of a product whose results are f16. A form that adds in another
/// order rounds by other random numbers: to any neighbour.
template <const program::Codelet& product, size_t position>
Sample rounded(uint32_t scale, uint64_t seed) {
  size_t at = 0;
  for (const NamedSample& named : samples_of(product)) {
    Sample sample = named.make(scale, seed);
    if (result_of(sample).type != Type::f16 || at++ != position) continue;
    const auto [relative, absolute] = sample.tolerance();
    sample.of(*rounded_form(product)).param(0x5EED).tolerance({2 * relative, absolute});
    return sample;
  }
  throw std::logic_error("a product without such a sample");
}

constexpr NamedSample rounded_sparse_product_uses[] = {{"b1-f16", rounded<sparse_product_codelet, 0>},
                                                       {"b4-f16", rounded<sparse_product_codelet, 1>},
                                                       {"b16-f16", rounded<sparse_product_codelet, 2>},
                                                       {"b16-f16-t", rounded<sparse_product_codelet, 3>}};
constexpr NamedSample rounded_sparse_transposed_product_uses[] = {
    {"b1-f16", rounded<sparse_transposed_product_codelet, 0>},
    {"b16-f16", rounded<sparse_transposed_product_codelet, 1>}};
constexpr NamedSample rounded_tile_sddmm_uses[] = {{"b1-f16", rounded<tile_sddmm_codelet, 0>},
                                                   {"b4-f16", rounded<tile_sddmm_codelet, 1>},
                                                   {"b16-f16", rounded<tile_sddmm_codelet, 2>}};
constexpr NamedSample rounded_dense_product_uses[] = {{"f16", rounded<dense_product_codelet, 0>}};
constexpr NamedSample rounded_dense_input_gradient_uses[] = {
    {"f16", rounded<dense_input_gradient_codelet, 0>}};
constexpr NamedSample rounded_dense_weight_gradient_uses[] = {
    {"f16", rounded<dense_weight_gradient_codelet, 0>}};
constexpr NamedSample rounded_bucket_product_uses[] = {{"b1-f16", rounded<bucket_product_codelet, 0>},
                                                       {"b4-f16", rounded<bucket_product_codelet, 1>},
                                                       {"b16-f16", rounded<bucket_product_codelet, 2>},
                                                       {"b16-f16-t", rounded<bucket_product_codelet, 3>}};
constexpr NamedSample rounded_bucket_sddmm_uses[] = {{"b4-f16", rounded<bucket_sddmm_codelet, 0>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(rounded_product, TESSERA_ROUNDED_PRODUCT_CODELETS)

}  // namespace tessera::kernels
