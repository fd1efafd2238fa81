// Dynamic sparse products on a tile: the blocks of a bucket that belong to the tile's partition, times the
// tile's part of X. Which blocks these are is known only at run time: kernels/tile/bucket/metadata.h.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Y += W·X for the blocks of a bucket that belong to one partition. values: blocks × b², each block
/// row-major; metadata: one row of u16; x: the partition's rows of X × n; y: its rows of Y × n. Values and X
/// are of one type, f32 or f16; y of that type or f32. The sum of a row in a subgroup is kept in FP32 and
/// rounded when stored. If the last block of X or of Y overhangs its field, the overhang is ignored.
/// Parameters: b; the partition; is_first: 1 if y is set to 0 before; transposed: 1 for Wᵀ with the values
/// and metadata of W: x has the partition's rows of dY, and y its rows of dX, to which each block adds,
/// rounded each time.
// Alignments and over-reads as in sparse_product.
#define TESSERA_BUCKET_PRODUCT_FIELDS(X) \
  X(values, .alignment = 8)              \
  X(metadata, .costed = true)            \
  X(x, .alignment = 8, .over_read = 16)  \
  X(y, .access = program::Access::inout, .alignment = 16, .interleaved = true, .over_read = 128)
#define TESSERA_BUCKET_PRODUCT_PARAMS(X) X(block_size) X(partition) X(is_first) X(transposed)

/// dW = dY·Xᵀ at the blocks of a bucket that belong to one partition. dw: blocks × b², each block row-major,
/// 0 where it overhangs dY or X, other blocks unchanged; metadata: one row of u16; x and dy: the partition's
/// rows of X and of dY × n. Types as above, and sums, rounded once. Parameters: b; the partition; is_first: 1
/// if dw is set to 0 before.
#define TESSERA_BUCKET_SDDMM_FIELDS(X)                                                            \
  X(dw, .access = program::Access::inout, .alignment = 16, .interleaved = true, .over_read = 128) \
  X(metadata, .costed = true)                                                                     \
  X(x, .alignment = 8, .over_read = 16)                                                           \
  X(dy, .alignment = 8, .over_read = 16)
#define TESSERA_BUCKET_SDDMM_PARAMS(X) X(block_size) X(partition) X(is_first)

/// counts[i] += by, or counts[i] = by if is_first. Field "counts" (count × 1, u32). Parameters: by; is_first.
/// Integers only.
#define TESSERA_COUNT_FIELDS(X) X(counts, .access = program::Access::inout)
#define TESSERA_COUNT_PARAMS(X) X(by) X(is_first)

/// flag = 1 if a bucket holds blocks of another partition that have not reached their tile yet, else 0.
/// Buckets move from partition to partition in a ring: bucket q is at partition q first, then at q − 1, and
/// so on. Fields "metadata" (one row of u16), "flag" (1 × 1, u32). Parameters: the partition at which the
/// bucket is; partitions. Integers only.
#define TESSERA_BUCKET_PENDING_FIELDS(X) X(metadata, .costed = true) X(flag, .access = program::Access::out)
#define TESSERA_BUCKET_PENDING_PARAMS(X) X(partition) X(partitions)

/// any = 1 if any of the flags (count × 1, u32) is not 0, else 0. Fields "flags", "any" (1 × 1, u32).
/// Integers only.
#define TESSERA_ANY_FLAG_FIELDS(X) X(flags) X(any, .access = program::Access::out)

#define TESSERA_BUCKET_CODELETS(X)                                                                          \
  X(bucket_product, TESSERA_BUCKET_PRODUCT_FIELDS, TESSERA_BUCKET_PRODUCT_PARAMS, bucket_product_simd, 900) \
  X(bucket_sddmm, TESSERA_BUCKET_SDDMM_FIELDS, TESSERA_BUCKET_SDDMM_PARAMS, bucket_sddmm_simd, 900)         \
  X(count, TESSERA_COUNT_FIELDS, TESSERA_COUNT_PARAMS, nullptr, 32, .integer_only = true)                   \
  X(bucket_pending, TESSERA_BUCKET_PENDING_FIELDS, TESSERA_BUCKET_PENDING_PARAMS, nullptr, 160,             \
    .integer_only = true)                                                                                   \
  X(any_flag, TESSERA_ANY_FLAG_FIELDS, TESSERA_NONE, nullptr, 64, .integer_only = true)
TESSERA_DECLARE_FAMILY(bucket, TESSERA_BUCKET_CODELETS)
TESSERA_BUCKET_CODELETS(TESSERA_DECLARE_FUNCTIONS)
TESSERA_POSITIONS(bucket_product_param, TESSERA_BUCKET_PRODUCT_PARAMS)
TESSERA_POSITIONS(bucket_sddmm_param, TESSERA_BUCKET_SDDMM_PARAMS)
TESSERA_POSITIONS(count_param, TESSERA_COUNT_PARAMS)
TESSERA_POSITIONS(bucket_pending_param, TESSERA_BUCKET_PENDING_PARAMS)

}  // namespace tessera::kernels
