// Products on a tile whose sums are rounded stochastically to 16 bits.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/tile/bucket/codelet.h"
#include "kernels/tile/tile_product/codelet.h"

namespace tessera::kernels {

// Each computes in FP32 what the codelet of its name without rounded_ computes, including what that adds to,
// and then rounds it to f16 or bf16 (base/stochastic_rounding.h). Element i of the result, row by row, takes
// word i of a random stream: of the seed, the last parameter, and of a checksum of the FP32 sums as its step.
// So other sums, as in each step of a training, take other numbers without a count of steps.

#define TESSERA_ROUNDED_SPARSE_PRODUCT_PARAMS(X) TESSERA_SPARSE_PRODUCT_PARAMS(X) X(seed)
#define TESSERA_ROUNDED_SPARSE_TRANSPOSED_PRODUCT_PARAMS(X) \
  TESSERA_SPARSE_TRANSPOSED_PRODUCT_PARAMS(X) X(seed)
#define TESSERA_ROUNDED_TILE_SDDMM_PARAMS(X) TESSERA_TILE_SDDMM_PARAMS(X) X(seed)
#define TESSERA_ROUNDED_DENSE_PRODUCT_PARAMS(X) TESSERA_DENSE_PRODUCT_PARAMS(X) X(seed)
#define TESSERA_ROUNDED_BUCKET_PRODUCT_PARAMS(X) TESSERA_BUCKET_PRODUCT_PARAMS(X) X(seed)
#define TESSERA_ROUNDED_BUCKET_SDDMM_PARAMS(X) TESSERA_BUCKET_SDDMM_PARAMS(X) X(seed)

#define TESSERA_ROUNDED_PRODUCT_CODELETS(X)                                                                  \
  X(rounded_sparse_product, TESSERA_SPARSE_PRODUCT_FIELDS, TESSERA_ROUNDED_SPARSE_PRODUCT_PARAMS,            \
    rounded_sparse_product_simd, 600)                                                                        \
  X(rounded_sparse_transposed_product, TESSERA_SPARSE_PRODUCT_FIELDS,                                        \
    TESSERA_ROUNDED_SPARSE_TRANSPOSED_PRODUCT_PARAMS, rounded_sparse_transposed_product_simd, 600)           \
  X(rounded_tile_sddmm, TESSERA_TILE_SDDMM_FIELDS, TESSERA_ROUNDED_TILE_SDDMM_PARAMS,                        \
    rounded_tile_sddmm_simd, 600)                                                                            \
  X(rounded_dense_product, TESSERA_DENSE_PRODUCT_FIELDS, TESSERA_ROUNDED_DENSE_PRODUCT_PARAMS,               \
    rounded_dense_product_simd, 600)                                                                         \
  X(rounded_dense_input_gradient, TESSERA_DENSE_INPUT_GRADIENT_FIELDS, TESSERA_ROUNDED_DENSE_PRODUCT_PARAMS, \
    rounded_dense_input_gradient_simd, 600)                                                                  \
  X(rounded_dense_weight_gradient, TESSERA_DENSE_WEIGHT_GRADIENT_FIELDS,                                     \
    TESSERA_ROUNDED_DENSE_PRODUCT_PARAMS, rounded_dense_weight_gradient_simd, 600)                           \
  X(rounded_bucket_product, TESSERA_BUCKET_PRODUCT_FIELDS, TESSERA_ROUNDED_BUCKET_PRODUCT_PARAMS,            \
    rounded_bucket_product_simd, 900)                                                                        \
  X(rounded_bucket_sddmm, TESSERA_BUCKET_SDDMM_FIELDS, TESSERA_ROUNDED_BUCKET_SDDMM_PARAMS,                  \
    rounded_bucket_sddmm_simd, 900)
TESSERA_DECLARE_FAMILY(rounded_product, TESSERA_ROUNDED_PRODUCT_CODELETS)
TESSERA_ROUNDED_PRODUCT_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// The codelet that computes the same and rounds it stochastically; null: there is none.
const program::Codelet* rounded_form(const program::Codelet& product);

}  // namespace tessera::kernels
