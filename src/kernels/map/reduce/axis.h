// Reductions of a matrix over one axis, or over all elements. FP32 arithmetic on f32, f16 and bf16, rounded
// once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/splits.h"
#include "program/codelet.h"

// The list of all reductions. maximum: NaN if any element is; of no elements −∞.
#define TESSERA_REDUCTIONS(X) X(sum) X(maximum) X(sum_of_squares)

namespace tessera::kernels {

#define TESSERA_ENUMERATOR(name) name,
enum class Reduction : uint8_t { TESSERA_REDUCTIONS(TESSERA_ENUMERATOR) };
#undef TESSERA_ENUMERATOR

/// What each result is of: a row, a column, or everything.
enum class ReduceOver : uint8_t { rows, columns, all };

/// How partial results become one.
constexpr Reduction joining(Reduction op) { return op == Reduction::sum_of_squares ? Reduction::sum : op; }

/// Rows of a part, which is enough work for a thread; parts are joined in order.
inline constexpr uint32_t kPartRows = 1024;
/// Columns of a part, whose sums stay in the L1 cache.
inline constexpr uint32_t kPartCols = 1024;
/// Columns of a piece of a row; pieces are joined in order. Fixed, so that the order of additions is fixed;
/// it also rounds long sums less often.
inline constexpr uint32_t kPieceCols = 1U << 13;

/// Reductions of at most kPartCols columns, a few rows at a time. Sums are read and written in whole vectors;
/// the rows of `in` are contiguous, and so is `out`, a row.
void begin_columns(Reduction op, uint32_t cols, float* sums);
void fold_columns(Reduction op, const program::FieldView& in, float* sums);
void store_columns(const float* sums, float scale, const program::FieldView& out);

/// Reductions of rows of at most kPieceCols contiguous elements: sums[r] is the sum or extremum of row r.
void reduce_lines(Reduction op, const program::FieldView& in, float* sums);
/// The same for one row, some elements at a time: a multiple of kLineSums but for the last. There are
/// kLineSums sums.
inline constexpr uint32_t kLineSums = 4 * kMaxLanes;
void begin_line(Reduction op, float* sums);
void fold_line(Reduction op, Type type, const std::byte* from, uint32_t count, float* sums);
float end_line(Reduction op, const float* sums);

/// out = scale · op of each column of `in` (rows × cols to 1 × cols) if over_rows, otherwise of each row (to
/// rows × 1). The order of additions depends on shape and strides alone, not on the number of threads.
/// Returns false, as there is no SIMD form, if `in` is empty or has integers, or neither its rows nor its
/// columns are contiguous.
bool apply_axis_reduction(Reduction op, bool over_rows, program::FieldView in, float scale,
                          program::FieldView out, program::Helpers* helpers);

/// out (1 × 1) = scale · op of all elements of `in`. As above.
bool apply_total_reduction(Reduction op, program::FieldView in, float scale, program::FieldView out,
                           program::Helpers* helpers);

}  // namespace tessera::kernels
