// Scaled dot-product attention (Vaswani et al. 2017), in one pass over the keys (Dao et al. 2022), and its
// gradients.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Some rows of y = softmax(scale · q · kᵀ + bias) · v for each head of a batch of sequences. q has "queries"
/// rows per sequence, of which the vertex has the rows from "row" on, and "size" columns per head; k and v
/// have "keys" rows for each sequence of which the vertex has queries. Heads of k and v, of which v has
/// "value_size" columns, are shared by equally many consecutive heads of q. y is as q, with the columns of v;
/// lse is f32: the logarithm of the softmax's denominator, a column for each head.
///
/// Query i attends to key j if j is in [i + offset − left, i + offset + right], where a negative left or
/// right is without limit; and, if there are ids (u32, a row for each sequence, a column for each query or
/// key), if both ids are the same and not 0. A query that attends to no key has the result 0, and the lse
/// kNoLogarithm. bias has a row of "keys" columns for each query, head and sequence, or shares it among
/// several: the bits of "bias_of" say between which it differs. q, k, v, bias and y are f32, f16 or bf16; all
/// is computed in FP32. "scale" is the bits of an FP32 number. A field whose bit is set in "transposed" is
/// stored as its transpose.
///
/// If there is a "step", a row of u32 as for dropout, probabilities are dropped as by dropout with "keep" of
/// the matrices queries × keys of "heads" heads of all sequences; "col" is the vertex's first head of k.
#define TESSERA_ATTENTION_INPUTS(X)              \
  X(q)                                           \
  X(k)                                           \
  X(v)                                           \
  X(query_ids, .optional = true, .costed = true) \
  X(key_ids, .optional = true, .costed = true) X(bias, .optional = true) X(step, .optional = true)
#define TESSERA_ATTENTION_FIELDS(X) \
  TESSERA_ATTENTION_INPUTS(X)       \
  X(lse, .access = program::Access::out) X(y, .access = program::Access::out)
#define TESSERA_ATTENTION_PARAMS(X) \
  X(size)                           \
  X(value_size)                     \
  X(queries)                        \
  X(keys)                           \
  X(heads)                          \
  X(left)                           \
  X(right)                          \
  X(offset)                         \
  X(scale)                          \
  X(bias_of)                        \
  X(seed)                           \
  X(operation)                      \
  X(keep)                           \
  X(transposed) X(row) X(col)

/// The gradients with y and lse as above; probabilities are recomputed. attention_gradient has whole
/// sequences, of which "row" is the first. The others are for machines of many tiles, none of which adds to
/// what another computes: attention_query_gradient has the rows of queries that attention has, and
/// attention_key_gradient some rows of k and v, of which "row" is the first, with all queries of their
/// sequences. Of y these need "means" only, f32 as lse, which the former computes: Σ dy · y of each query and
/// head is the mean gradient of its probabilities.
#define TESSERA_ATTENTION_GRADIENT_INPUTS(X) TESSERA_ATTENTION_INPUTS(X) X(y) X(lse) X(dy)
#define TESSERA_ATTENTION_GRADIENT_FIELDS(X) \
  TESSERA_ATTENTION_GRADIENT_INPUTS(X)       \
  X(dk, .access = program::Access::out)      \
  X(dv, .access = program::Access::out) X(dq, .access = program::Access::out)
#define TESSERA_ATTENTION_QUERY_GRADIENT_FIELDS(X) \
  TESSERA_ATTENTION_GRADIENT_INPUTS(X)             \
  X(means, .access = program::Access::out) X(dq, .access = program::Access::out)
#define TESSERA_ATTENTION_KEY_GRADIENT_FIELDS(X) \
  TESSERA_ATTENTION_INPUTS(X)                    \
  X(means) X(lse) X(dy) X(dk, .access = program::Access::out) X(dv, .access = program::Access::out)

/// Code on a tile, and on the stacks of six workers the scores of 16 queries and 16 keys each; the gradients
/// have the scores' gradients beside them.
inline constexpr uint32_t kAttentionCodeBytes = 2048, kAttentionScoreBytes = 6 * 16 * 16 * 4;

#define TESSERA_ATTENTION_CODELETS(X)                                                                   \
  X(attention, TESSERA_ATTENTION_FIELDS, TESSERA_ATTENTION_PARAMS, attention_simd, kAttentionCodeBytes, \
    .stack_bytes = kAttentionScoreBytes)                                                                \
  X(attention_gradient, TESSERA_ATTENTION_GRADIENT_FIELDS, TESSERA_ATTENTION_PARAMS,                    \
    attention_gradient_simd, 0, .runs_on = program::RunsOn::hosts)                                      \
  X(attention_query_gradient, TESSERA_ATTENTION_QUERY_GRADIENT_FIELDS, TESSERA_ATTENTION_PARAMS,        \
    attention_query_gradient_simd, 2 * kAttentionCodeBytes, .stack_bytes = 2 * kAttentionScoreBytes,    \
    .runs_on = program::RunsOn::tiles)                                                                  \
  X(attention_key_gradient, TESSERA_ATTENTION_KEY_GRADIENT_FIELDS, TESSERA_ATTENTION_PARAMS,            \
    attention_key_gradient_simd, 2 * kAttentionCodeBytes, .stack_bytes = 2 * kAttentionScoreBytes,      \
    .runs_on = program::RunsOn::tiles)

/// The rows of which a vertex has some: rows of queries or keys, or all rows of some sequences.
enum class AttentionRowsOf : uint8_t { queries, sequences, keys };

/// Bits of "bias_of".
inline constexpr int64_t kBiasOfQueries = 1, kBiasOfHeads = 2, kBiasOfSequences = 4;

/// lse of a query that attends to no key: exponentials of scores minus it are 0.
inline constexpr float kNoLogarithm = 1e30F;

TESSERA_POSITIONS(attention_input, TESSERA_ATTENTION_INPUTS)
TESSERA_POSITIONS(attention_gradient_input, TESSERA_ATTENTION_GRADIENT_INPUTS)
TESSERA_POSITIONS(attention_param, TESSERA_ATTENTION_PARAMS)

/// The bit of a field in "transposed".
constexpr int64_t transposed_bit(size_t field) { return int64_t{1} << field; }

TESSERA_DECLARE_FAMILY(attention, TESSERA_ATTENTION_CODELETS)
TESSERA_ATTENTION_CODELETS(TESSERA_DECLARE_FUNCTIONS)

// All gradients have these at the same positions.
static_assert(size_t{attention_key_gradient_field::lse} == size_t{attention_gradient_input::lse} &&
              size_t{attention_key_gradient_field::dy} == size_t{attention_gradient_input::dy});

}  // namespace tessera::kernels
