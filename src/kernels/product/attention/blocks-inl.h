// Blocks of queries and keys, of which attention and its gradient compute the probabilities.
#if defined(TESSERA_ATTENTION_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ATTENTION_BLOCKS_INL_H_
#undef TESSERA_ATTENTION_BLOCKS_INL_H_
#else
#define TESSERA_ATTENTION_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>

#include "kernels/product/attention/problem.h"
#include "kernels/product/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using PanelVector = hn::Vec<PanelFloats>;

// Queries of a block lie along vectors; keys are factors.
inline constexpr uint32_t kQueryBlock = kDenseSumStep;
inline constexpr uint32_t kQueryPanels = kDensePanels;
inline constexpr uint32_t kKeyBlock = 96;
inline constexpr size_t kBlockPanel = size_t{kKeyBlock} * kPanelRows;  // scores of a panel: [key][kPanelRows]
inline constexpr float kLog2E = static_cast<float>(std::numbers::log2e);
inline constexpr float kLn2 = static_cast<float>(std::numbers::ln2);

// 2^x for x ≤ 128; 0 below 2^−126. As Cephes' exp2f.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V power_of_two(D d, V x) {
  const hn::RebindToSigned<D> integers;
  const V least = hn::Set(d, -127.0F);
  x = hn::IfThenElse(hn::Lt(x, least), least, x);
  const V whole = hn::Round(x);
  const V rest = hn::Sub(x, whole);
  V power = hn::Set(d, 1.535336188319500e-4F);
  for (const float c : {1.339887440266574e-3F, 9.618437357674640e-3F, 5.550332471162809e-2F,
                        2.402264791363012e-1F, 6.931472028550421e-1F, 1.0F})
    power = hn::MulAdd(power, rest, hn::Set(d, c));
  const auto exponent = hn::Add(hn::ConvertTo(integers, whole), hn::Set(integers, 127));
  return hn::Mul(power, hn::BitCast(d, hn::ShiftLeft<23>(exponent)));
}

// Keys of a head, of one range, in blocks: [block][term][kKeyBlock].
struct KeyBlocks {
  KeyRange range;

  uint32_t count() const { return (range.end - range.begin + kKeyBlock - 1) / kKeyBlock; }
  uint32_t first(uint32_t block) const { return range.begin + block * kKeyBlock; }
  uint32_t keys(uint32_t block) const { return std::min(kKeyBlock, range.end - first(block)); }

  // Of the rows of a field from `row` on, `terms` columns from `col` on.
  void copy(const FieldView& from, uint32_t row, uint32_t col, uint32_t terms, float* to) const {
    for (uint32_t b = 0; b < count(); ++b, to += size_t{terms} * kKeyBlock)
      copy_terms(row_lines(from, row + first(b), keys(b), col, terms), to, kKeyBlock);
  }
  size_t floats(uint32_t terms) const { return floats_before(count(), terms); }
  static size_t floats_before(uint32_t block, uint32_t terms) { return size_t{block} * terms * kKeyBlock; }
};

// Columns of rows, times a factor, in panels of rows: [panel][column][kPanelRows], zeros beyond the rows.
inline void copy_query_panels(const FieldView& from, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols,
                              float factor, float* to) {
  const PanelFloats d;
  const size_t floats = size_t{cols} * kPanelRows * kQueryPanels;
  if (rows <= kPanelRows) std::fill(to + floats / 2, to + floats, 0.0F);
  copy_panels(row_lines(from, row, rows, col, cols), to);
  const PanelVector scale = hn::Set(d, factor);
  for (size_t i = 0; i < floats; i += kPanelLanes) hn::Store(hn::Mul(hn::Load(d, to + i), scale), d, to + i);
}

// A block of queries of one head of a sequence.
struct QueryBlock {
  uint32_t sequence, head;
  uint32_t row;       // in the field
  uint32_t position;  // in the sequence
  uint32_t rows;
  int32_t ids[kQueryBlock];

  QueryBlock(const AttentionProblem& p, uint32_t of_sequence, uint32_t of_head, uint32_t first_row,
             uint32_t first_position, uint32_t count)
      : sequence(of_sequence), head(of_head), row(first_row), position(first_position), rows(count) {
    for (uint32_t i = 0; i < kQueryBlock; ++i)
      ids[i] = p.has_ids() && i < rows ? static_cast<int32_t>(p.query_id(sequence, position + i)) : 0;
  }
};

// Scores of a block of queries and one of keys, in units of log 2: [panel][key][kPanelRows].
class ScoreBlocks {
 public:
  ScoreBlocks(const program::Vertex& v, const AttentionProblem& problem) : v_(v), p_(problem) {}

  // Whether any query may attend to any of the keys, as far as ids tell.
  bool may_attend(const QueryBlock& queries, uint32_t key, uint32_t keys) const {
    if (!p_.has_ids()) return true;
    const auto [low, high] = std::minmax_element(queries.ids, queries.ids + queries.rows);
    for (uint32_t j = key; j < key + keys; ++j)
      if (const auto id = static_cast<int32_t>(p_.key_id(queries.sequence, j));
          id >= *low && id <= *high && id != 0)
        return true;
    return false;
  }

  // `panels` are the queries' and `block` the keys' of KeyBlocks; `bias` has room for a block.
  void compute(const QueryBlock& queries, const float* panels, const float* block, uint32_t key,
               uint32_t keys, float* bias, float* scores) const {
    run_micro_tiles<kAlongRow>(MicroTile<float>{panels, size_t{p_.size} * kPanelRows, block, kKeyBlock,
                                                p_.size, scores, kBlockPanel, false, panels},
                               panels_of(queries), keys, [](uint32_t, uint32_t) {});
    if (p_.has_bias()) add_bias(queries, key, keys, bias, scores);
    if (is_cut(queries, key, keys)) cut(queries, key, keys, scores);
    if (p_.has_ids()) match(queries, key, keys, scores);
  }

  static uint32_t panels_of(const QueryBlock& queries) {
    return (queries.rows + kPanelRows - 1) / kPanelRows;
  }

 private:
  void add_bias(const QueryBlock& queries, uint32_t key, uint32_t keys, float* bias, float* scores) const {
    const PanelFloats d;
    const FieldView& field = v_.fields[attention_input::bias];
    Lines lines = row_lines(field, p_.bias_row(queries.sequence, queries.head, queries.position),
                            queries.rows, key, keys);
    lines.line_step *= p_.bias_query_step();
    copy_terms(lines, bias, kQueryBlock);
    const PanelVector unit = hn::Set(d, kLog2E);
    const PanelVector least = hn::Set(d, std::numeric_limits<float>::lowest() / 4);
    const PanelVector none = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (uint32_t p = 0; p < panels_of(queries); ++p)
      for (uint32_t j = 0; j < keys; ++j)
        for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes) {
          float* score = scores + p * kBlockPanel + j * kPanelRows + lane;
          const PanelVector b = hn::LoadU(d, bias + j * kQueryBlock + p * kPanelRows + lane);
          // The least finite numbers stay finite: keys are hidden only by minus infinity.
          const PanelVector finite = hn::IfThenElse(hn::And(hn::Lt(b, least), hn::Gt(b, none)), least, b);
          hn::StoreU(hn::MulAdd(finite, unit, hn::LoadU(d, score)), d, score);
        }
  }

  // Whether the window leaves out some pair of the block.
  bool is_cut(const QueryBlock& queries, uint32_t key, uint32_t keys) const {
    if (!p_.has_window()) return false;
    const KeyRange first = p_.reach(queries.position, queries.position + 1);
    const uint32_t last_query = queries.position + queries.rows;
    const KeyRange last = p_.reach(last_query - 1, last_query);
    return std::max(first.begin, last.begin) > key || std::min(first.end, last.end) < key + keys;
  }

  template <class Allowed>
  static void keep(const QueryBlock& queries, uint32_t keys, float* scores, const Allowed& allowed) {
    const PanelFloats d;
    const auto none = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (uint32_t p = 0; p < panels_of(queries); ++p)
      for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes) {
        const auto mask = allowed(p * kPanelRows + lane);
        for (uint32_t j = 0; j < keys; ++j) {
          float* score = scores + p * kBlockPanel + j * kPanelRows + lane;
          hn::StoreU(hn::IfThenElse(hn::RebindMask(d, mask(j)), hn::LoadU(d, score), none), d, score);
        }
      }
  }

  void cut(const QueryBlock& queries, uint32_t key, uint32_t keys, float* scores) const {
    const hn::RebindToSigned<PanelFloats> d;
    int32_t begins[kQueryBlock], ends[kQueryBlock];
    for (uint32_t i = 0; i < kQueryBlock; ++i) {
      const KeyRange range = p_.reach(queries.position + i, queries.position + i + 1);
      begins[i] = static_cast<int32_t>(range.begin) - static_cast<int32_t>(key);
      ends[i] = static_cast<int32_t>(range.end) - static_cast<int32_t>(key);
    }
    keep(queries, keys, scores, [&](size_t i) HWY_ATTR {
      const auto begin = hn::LoadU(d, begins + i), end = hn::LoadU(d, ends + i);
      return [=](uint32_t j) HWY_ATTR {
        const auto at = hn::Set(hn::RebindToSigned<PanelFloats>(), static_cast<int32_t>(j));
        return hn::AndNot(hn::Lt(at, begin), hn::Lt(at, end));
      };
    });
  }

  void match(const QueryBlock& queries, uint32_t key, uint32_t keys, float* scores) const {
    const hn::RebindToSigned<PanelFloats> d;
    keep(queries, keys, scores, [&](size_t i) HWY_ATTR {
      const auto id = hn::LoadU(d, queries.ids + i);
      const auto is_some = hn::Ne(id, hn::Zero(d));
      return [=, this, &queries](uint32_t j) HWY_ATTR {
        const auto other = static_cast<int32_t>(p_.key_id(queries.sequence, key + j));
        return hn::And(is_some, hn::Eq(id, hn::Set(hn::RebindToSigned<PanelFloats>(), other)));
      };
    });
  }

  const program::Vertex& v_;
  const AttentionProblem& p_;
};

// Values of a field's rows in FP32, a row every `step` floats: as they lie, or copied.
struct WideRows {
  const float* data;
  size_t step;

  static bool are_in_place(const FieldView& field) {
    return field.type == Type::f32 && field.col_stride == 1;
  }
  static size_t floats(const FieldView& field, uint32_t rows, uint32_t cols) {
    return are_in_place(field) ? 0 : size_t{rows} * round_up(cols, kPanelRows);
  }
  WideRows(const FieldView& field, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols, float* copy) {
    if (are_in_place(field)) {
      data = row_of<const float>(field, row) + col;
      step = static_cast<size_t>(field.row_stride);
      return;
    }
    data = copy;
    step = round_up(cols, kPanelRows);
    copy_terms(col_lines(field, row, rows, col, cols), copy, step);
  }
};

// Columns of a panel of rows, of which each column is contiguous.
template <class T>
void store_columns(const float* panel, uint32_t rows, uint32_t cols, T* to, int64_t col_step) {
  for (uint32_t c = 0; c < cols; ++c, panel += kPanelRows, to += col_step)
    each_vector(rows, [&](size_t i, size_t some)
                          HWY_ATTR { store_some(hn::LoadU(PanelFloats(), panel + i), to + i, some); });
}

// Writes columns of rows that lie in panels: [panel][column][kPanelRows].
inline void store_query_panels(const float* panels, const FieldView& to, uint32_t row, uint32_t rows,
                               uint32_t col, uint32_t cols) {
  with_float_type(to.type, [&]<class T>(T) HWY_ATTR {
    for (uint32_t begin = 0; begin < rows; begin += kPanelRows, panels += size_t{cols} * kPanelRows) {
      const uint32_t lines = std::min(kPanelRows, rows - begin);
      if (to.col_stride != 1) {
        store_columns(panels, lines, cols, reinterpret_cast<T*>(address_of(to, row + begin, col)),
                      to.col_stride);
        continue;
      }
      for (uint32_t c = 0; c < cols; c += kPanelRows) {
        const uint32_t count = std::min(kPanelRows, cols - c);
        HWY_ALIGN float square[kPanelRows * kPanelRows];
        transpose(panels + size_t{c} * kPanelRows, kPanelRows, count, kPanelRows, square, kPanelRows);
        for (uint32_t r = 0; r < lines; ++r) {
          T* at = row_of<T>(to, row + begin + r) + col + c;
          each_vector(count, [&](size_t i, size_t some) HWY_ATTR {
            store_some(hn::LoadU(PanelFloats(), square + r * kPanelRows + i), at + i, some);
          });
        }
      }
    }
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
