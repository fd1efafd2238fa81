// Products of attention in BF16, by the processor's BF16 instructions.
#if defined(TESSERA_ATTENTION_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ATTENTION_BF16_INL_H_
#undef TESSERA_ATTENTION_BF16_INL_H_
#else
#define TESSERA_ATTENTION_BF16_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/bf16_product.h"
#include "kernels/host/dense/bf16_rows-inl.h"
#include "kernels/product/attention/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
// Keys and values of a head for one range of keys, and a block of queries, as factors of BF16 products.
class Bf16Attention {
 public:
  static bool can_multiply(const program::Vertex& v) { return multiplies_bf16(v, active_isa()); }

  /// Number of floats of a buffer for `keys` keys.
  static size_t floats(const AttentionProblem& p, uint32_t keys) { return Layout(p, keys).total; }

  Bf16Attention(const AttentionProblem& p, KeyRange range, float* buffer)
      : p_(p), range_(range), at_(p, range.size()), values_(reinterpret_cast<base::Bfloat16*>(buffer)) {}

  void copy_keys(const FieldView& from, uint32_t row, uint32_t col) {
    copy_lines(from.matrix<const base::Bfloat16>(), row, range_.size(), col, p_.size, values_ + at_.keys,
               at_.key_step);
  }

  // Copies values transposed, with zeros after the last key: steps may begin at any key.
  void copy_values(const FieldView& from, uint32_t row, uint32_t col) {
    const uint32_t keys = range_.size();
    for (uint32_t c = 0; c < p_.value_size; ++c) {
      base::Bfloat16* const line = values_ + at_.values + c * at_.value_step;
      std::fill(line + round_up(keys, kBf16Step), line + at_.value_step, base::Bfloat16{});
    }
    if (from.col_stride == 1) {
      for (uint32_t c = 0; c < p_.value_size; c += kBf16Columns)
        for (uint32_t r = 0; r < keys; r += kBf16Step)
          transpose_bf16_step(from, row + r, row + keys, col + c, std::min(kBf16Columns, p_.value_size - c),
                              values_ + at_.values + c * at_.value_step + r, at_.value_step);
      return;
    }
    const MatrixView<const base::Bfloat16> by_columns{from.as<const base::Bfloat16>(), from.col_stride,
                                                      from.row_stride};
    copy_lines(by_columns, col, p_.value_size, row, keys, values_ + at_.values, at_.value_step);
  }

  void copy_queries(const FieldView& from, uint32_t row, uint32_t rows, uint32_t col) {
    HWY_ALIGN base::Bfloat16 lines[kQueryBlock * kBf16Step];
    const uint32_t panels = panels_of(rows);
    base::Bfloat16* to = values_ + at_.queries;
    for (uint32_t term = 0; term < p_.size; term += kBf16Step) {
      copy_lines(from.matrix<const base::Bfloat16>(), row, rows, col + term,
                 std::min(kBf16Step, p_.size - term), lines, kBf16Step);
      std::fill(lines + rows * kBf16Step, lines + panels * kBf16StepValues, base::Bfloat16{});
      for (uint32_t p = 0; p < panels; ++p, to += kBf16StepValues)
        transpose_pairs(lines + p * kBf16StepValues, to);
    }
  }

  // Computes the scores of keys in the range, in units of log 2.
  void multiply_keys(uint32_t queries, KeyRange keys, float* scores) {
    const uint32_t panels = panels_of(queries);
    multiply({.a = values_ + at_.keys + (keys.begin - range_.begin) * at_.key_step,
              .a_step = at_.key_step,
              .b = values_ + at_.queries,
              .panels = panels,
              .steps = steps_of(p_.size),
              .sums = scores,
              .sums_step = kPanelRows,
              .sums_panel = kBlockPanel},
             keys.size());
    const PanelFloats d;
    const PanelVector scale = hn::Set(d, p_.scale * kLog2E);
    for (uint32_t p = 0; p < panels; ++p)
      for (size_t i = p * kBlockPanel; i < p * kBlockPanel + keys.size() * kPanelRows; i += kPanelLanes)
        hn::StoreU(hn::Mul(hn::LoadU(d, scores + i), scale), d, scores + i);
  }

  // Adds the values of keys times powers of scores, which are rounded to BF16.
  void multiply_values(uint32_t queries, KeyRange keys, const float* powers, bool adds, float* result) {
    const uint32_t panels = panels_of(queries), steps = steps_of(keys.size());
    for (uint32_t p = 0; p < panels; ++p)
      pack_bf16_sums(powers + p * kBlockPanel, keys.size(), values_ + at_.powers + p * kBf16StepValues,
                     panels * kBf16StepValues);
    Bf16Tile tile = {.a = values_ + at_.values + (keys.begin - range_.begin),
                     .a_step = at_.value_step,
                     .b = values_ + at_.powers,
                     .panels = panels,
                     .steps = steps,
                     .sums = result,
                     .sums_step = kPanelRows,
                     .sums_panel = size_t{p_.value_size} * kPanelRows,
                     .adds = adds};
    const uint32_t rest = keys.size() % kBf16Step;
    if (rest == 0 || keys.end == range_.end) return multiply(tile, p_.value_size);
    // Values after the last key might be NaN.
    base::Bfloat16* last = values_ + at_.last;
    copy_lines({tile.a + (keys.size() - rest), static_cast<int64_t>(at_.value_step), 1}, 0, p_.value_size, 0,
               rest, last, kBf16Step);
    if (--tile.steps > 0) {
      multiply(tile, p_.value_size);
      tile.adds = true;
    }
    tile.a = last;
    tile.a_step = kBf16Step;
    tile.b += tile.steps * panels * kBf16StepValues;
    tile.steps = 1;
    multiply(tile, p_.value_size);
  }

 private:
  // Offsets in the buffer, in values.
  struct Layout {
    size_t key_step, value_step;
    size_t keys = 0, values, queries, powers, last, total;

    Layout(const AttentionProblem& p, uint32_t range) {
      key_step = round_up(p.size, kBf16Step);
      value_step = round_up(range, kBf16Step) + kBf16Step;  // rows in different sets of the L1 cache
      values = range * key_step;
      queries = values + round_up(p.value_size, kBf16Columns) * value_step;
      powers = queries + key_step * kQueryBlock;
      last = powers + size_t{kKeyBlock} * kQueryBlock;
      total = (last + size_t{p.value_size} * kBf16Step) / 2 + kPanelRows;
    }
  };

  static uint32_t panels_of(uint32_t queries) { return (queries + kPanelRows - 1) / kPanelRows; }
  static uint32_t steps_of(uint32_t terms) { return (terms + kBf16Step - 1) / kBf16Step; }

  static void copy_lines(MatrixView<const base::Bfloat16> from, uint32_t row, uint32_t rows, uint32_t col,
                         uint32_t cols, base::Bfloat16* to, size_t to_step) {
    for (uint32_t r = 0; r < rows; ++r, to += to_step) {
      const base::Bfloat16* line = from.pointer_to(row + r, col);
      if (from.col_stride == 1)
        std::copy_n(line, cols, to);
      else
        for (uint32_t c = 0; c < cols; ++c) to[c] = line[c * from.col_stride];
      std::fill(to + cols, to + round_up(cols, kBf16Step), base::Bfloat16{});
    }
  }

  // Rows of a step as pairs of terms.
  static void transpose_pairs(const base::Bfloat16* lines, base::Bfloat16* to) {
    static_assert(kLanes == kBf16Columns);
    transpose_square(reinterpret_cast<const float*>(lines), kBf16Step / 2, reinterpret_cast<float*>(to),
                     kBf16Columns, false);
  }

  void multiply(Bf16Tile tile, uint32_t rows) {
    for (uint32_t row = 0; row < rows; row += kBf16Rows) {
      tile.rows = std::min(kBf16Rows, rows - row);
      product_.run(tile);
      tile.a += kBf16Rows * tile.a_step;
      tile.sums += kBf16Rows * tile.sums_step;
    }
  }

  const AttentionProblem& p_;
  const KeyRange range_;
  const Layout at_;
  base::Bfloat16* values_;
  Bf16Product product_;
};
#else
// Never used: this target has no BF16 instructions.
struct Bf16Attention {
  static bool can_multiply(const program::Vertex&) { return false; }
  static size_t floats(const AttentionProblem&, uint32_t) { return 0; }
  Bf16Attention(const AttentionProblem&, KeyRange, float*) {}
  void copy_keys(const FieldView&, uint32_t, uint32_t) {}
  void copy_values(const FieldView&, uint32_t, uint32_t) {}
  void copy_queries(const FieldView&, uint32_t, uint32_t, uint32_t) {}
  void multiply_keys(uint32_t, KeyRange, float*) {}
  void multiply_values(uint32_t, KeyRange, const float*, bool, float*) {}
};
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
