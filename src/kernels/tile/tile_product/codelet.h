// Products on a tile with its own memory: blocks or elements of a part of W, times the tile's rows of X.
#pragma once

#include <span>

#include "kernels/sample.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Fields of sparse_product, by position.
namespace sparse_product_field {
enum : size_t { values, lists, x, y, count };
}

/// Y = W·X for some block rows. values: blocks × b², each block row-major; lists (count × 1, u16 or u32): for
/// each block row its number of blocks, then the position in X of each, in blocks; x: rows × n; y: rows × n,
/// block row after block row. Values and X are of one type, f32 or f16; y of that type or f32. Sums are kept
/// in FP32 and rounded when stored. If the last block of X or of Y overhangs its field, the overhang is
/// ignored. Parameters: b; transposed: 1 if each block is read as its transpose, for Wᵀ with the values of W.
extern const program::Codelet sparse_product_codelet;

/// Fields of sparse_transposed_product, by position.
namespace sparse_transposed_product_field {
enum : size_t { values, lists, x, y, count };
}

/// Y = Wᵀ·X for the blocks of W as stored for sparse_product, in their order. lists (count × 1, u16 or u32):
/// for each block column its number of blocks, then for each block its number and the position in X of its
/// block row, in blocks; y: rows × n, block column after block column. Otherwise like sparse_product.
/// Parameter: b.
extern const program::Codelet sparse_transposed_product_codelet;

/// Fields of tile_sddmm, by position.
namespace tile_sddmm_field {
enum : size_t { dy, lists, x, dw, count };
}

/// dW = dY·Xᵀ at some blocks: dy: rows × n, block row after block row; lists and x (rows × n) as
/// above; dw: blocks × b², each block row-major, 0 where it overhangs dY or X. dY and X are of one
/// type, f32 or f16; dw of that type or f32. Sums are kept in FP32 and rounded when stored.
/// Parameter: b.
extern const program::Codelet tile_sddmm_codelet;

/// Fields of dense_product, by position.
namespace dense_product_field {
enum : size_t { w, x, y, count };
}

/// Y = W·X of full matrices, each stored as one row: w: m · k elements, row by row; x: k · n; y: m
/// · n. Types as above. Parameters: m, k, n.
extern const program::Codelet dense_product_codelet;

/// Fields of dense_input_gradient, by position.
namespace dense_input_gradient_field {
enum : size_t { w, dy, dx, count };
}

/// dX = Wᵀ·dY with the W of dense_product, which is read as its transpose: w: m · k elements, row by row; dy:
/// m · n; dx: k · n. Types and parameters as above.
extern const program::Codelet dense_input_gradient_codelet;

/// Fields of dense_weight_gradient, by position.
namespace dense_weight_gradient_field {
enum : size_t { dy, x, dw, count };
}

/// dW = dY·Xᵀ with the X of dense_product, which is read as its transpose: dy: m · n elements, row by row; x:
/// k · n; dw: m · k. Types and parameters as above.
extern const program::Codelet dense_weight_gradient_codelet;

std::span<const ListedCodelet> tile_product_codelets();

}  // namespace tessera::kernels
