// Products on a tile with its own memory: blocks or elements of a part of W, times the tile's rows of X.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

// As PopLibs' vertices require: weights and X are loaded in units of 8 bytes; blocks are in units of 16 bytes
// and interleaved; loops over-read X by 16 bytes, and Y by up to 128 (blocks of 16).

/// Y = W·X for some block rows. values: blocks × b², each block row-major; lists (count × 1, u16 or u32): for
/// each block row its number of blocks, then the position in X of each, in blocks; x: rows × n; y: rows × n,
/// block row after block row. Values and X are of one type, f32 or f16; y of that type or f32. Sums are kept
/// in FP32 and rounded when stored. If the last block of X or of Y overhangs its field, the overhang is
/// ignored. Parameters: b; transposed: 1 if each block is read as its transpose, for Wᵀ with the values of W.
#define TESSERA_SPARSE_PRODUCT_FIELDS(X) \
  X(values, .alignment = 8)              \
  X(lists, .costed = true)               \
  X(x, .alignment = 8, .over_read = 16)  \
  X(y, .access = program::Access::out, .alignment = 16, .interleaved = true, .over_read = 128)
#define TESSERA_SPARSE_PRODUCT_PARAMS(X) X(block_size) X(transposed)

/// Y = Wᵀ·X for the blocks of W as stored for sparse_product, in their order. lists (count × 1, u16 or u32):
/// for each block column its number of blocks, then for each block its number and the position in X of its
/// block row, in blocks; y: rows × n, block column after block column. Otherwise like sparse_product.
/// Parameter: b.
#define TESSERA_SPARSE_TRANSPOSED_PRODUCT_PARAMS(X) X(block_size)

/// dW = dY·Xᵀ at some blocks: dy: rows × n, block row after block row; lists and x (rows × n) as
/// above; dw: blocks × b², each block row-major, 0 where it overhangs dY or X. dY and X are of one
/// type, f32 or f16; dw of that type or f32. Sums are kept in FP32 and rounded when stored.
/// Parameter: b.
#define TESSERA_TILE_SDDMM_FIELDS(X)     \
  X(dy, .alignment = 8, .over_read = 16) \
  X(lists, .costed = true)               \
  X(x, .alignment = 8, .over_read = 16)  \
  X(dw, .access = program::Access::out, .alignment = 16, .interleaved = true, .over_read = 128)
#define TESSERA_TILE_SDDMM_PARAMS(X) X(block_size)

/// Y = W·X of full matrices, each stored as one row: w: m · k elements, row by row; x: k · n; y: m
/// · n. Types as above. Parameters: m, k, n.
#define TESSERA_DENSE_PRODUCT_FIELDS(X) \
  X(w, .alignment = 8)                  \
  X(x, .alignment = 8, .over_read = 16) \
  X(y, .access = program::Access::out, .alignment = 16, .interleaved = true)
#define TESSERA_DENSE_PRODUCT_PARAMS(X) X(m) X(k) X(n)

/// dX = Wᵀ·dY with the W of dense_product, which is read as its transpose: w: m · k elements, row by row; dy:
/// m · n; dx: k · n. Types and parameters as above.
#define TESSERA_DENSE_INPUT_GRADIENT_FIELDS(X) \
  X(w, .alignment = 8)                         \
  X(dy, .alignment = 8, .over_read = 16)       \
  X(dx, .access = program::Access::out, .alignment = 16, .interleaved = true)

/// dW = dY·Xᵀ with the X of dense_product, which is read as its transpose: dy: m · n elements, row by row; x:
/// k · n; dw: m · k. Types and parameters as above.
#define TESSERA_DENSE_WEIGHT_GRADIENT_FIELDS(X) \
  X(dy, .alignment = 8)                         \
  X(x, .alignment = 8, .over_read = 16)         \
  X(dw, .access = program::Access::out, .alignment = 16, .interleaved = true)

#define TESSERA_TILE_PRODUCT_CODELETS(X)                                                                    \
  X(sparse_product, TESSERA_SPARSE_PRODUCT_FIELDS, TESSERA_SPARSE_PRODUCT_PARAMS, sparse_product_simd, 600) \
  X(sparse_transposed_product, TESSERA_SPARSE_PRODUCT_FIELDS, TESSERA_SPARSE_TRANSPOSED_PRODUCT_PARAMS,     \
    sparse_transposed_product_simd, 600)                                                                    \
  X(tile_sddmm, TESSERA_TILE_SDDMM_FIELDS, TESSERA_TILE_SDDMM_PARAMS, tile_sddmm_simd, 600)                 \
  X(dense_product, TESSERA_DENSE_PRODUCT_FIELDS, TESSERA_DENSE_PRODUCT_PARAMS, dense_product_simd, 600)     \
  X(dense_input_gradient, TESSERA_DENSE_INPUT_GRADIENT_FIELDS, TESSERA_DENSE_PRODUCT_PARAMS,                \
    dense_input_gradient_simd, 600)                                                                         \
  X(dense_weight_gradient, TESSERA_DENSE_WEIGHT_GRADIENT_FIELDS, TESSERA_DENSE_PRODUCT_PARAMS,              \
    dense_weight_gradient_simd, 600)
TESSERA_DECLARE_FAMILY(tile_product, TESSERA_TILE_PRODUCT_CODELETS)
TESSERA_TILE_PRODUCT_CODELETS(TESSERA_DECLARE_FUNCTIONS)
TESSERA_POSITIONS(sparse_product_param, TESSERA_SPARSE_PRODUCT_PARAMS)
TESSERA_POSITIONS(sparse_transposed_product_param, TESSERA_SPARSE_TRANSPOSED_PRODUCT_PARAMS)
TESSERA_POSITIONS(tile_sddmm_param, TESSERA_TILE_SDDMM_PARAMS)
TESSERA_POSITIONS(dense_product_param, TESSERA_DENSE_PRODUCT_PARAMS)

/// m, k and n of a vertex of dense products.
inline std::array<int64_t, 3> dense_sizes(const program::Vertex& v) {
  using namespace dense_product_param;
  return {v.params[m], v.params[k], v.params[n]};
}

}  // namespace tessera::kernels
