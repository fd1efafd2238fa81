// Blocks of queries and keys, over whose scores attention and its gradient iterate.
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

#include "kernels/common/draws-inl.h"
#include "kernels/product/attention/problem.h"
#include "kernels/product/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using PanelVector = hn::Vec<PanelFloats>;

// Queries of a block lie along vectors; keys are factors.
inline constexpr uint32_t kQueryPanels = kDensePanels;
inline constexpr uint32_t kQueryBlock = kQueryPanels * kPanelRows;
inline constexpr uint32_t kKeyBlock = 96;
inline constexpr size_t kBlockPanel = size_t{kKeyBlock} * kPanelRows;  // scores of a panel: [key][kPanelRows]
inline constexpr size_t kBlockScores = kQueryPanels * kBlockPanel;
inline constexpr float kLog2E = static_cast<float>(std::numbers::log2e);
inline constexpr float kLn2 = static_cast<float>(std::numbers::ln2);

// 2^x for x in [−½, ½], with the least relative error of such a polynomial, 1.7e-7; 2^0 is 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V small_power_of_two(D d, V x) {
  V power = hn::Set(d, 0.0013264728F);
  for (const float c : {0.009671513F, 0.055507336F, 0.24022242F, 0.693147F, 1.0F})
    power = hn::MulAdd(power, x, hn::Set(d, c));
  return power;
}

// 2^(x − base) for x < base + 128; 0 below 2^−126. The base is a whole number, at most kLargestBase in size.
template <class D, class V = hn::Vec<D>>
class PowersOfTwo {
 public:
  explicit PowersOfTwo(D d, V base)
      : shift_(hn::Sub(hn::Set(d, 0x1.8p23F + 127), base)), least_(hn::Sub(base, hn::Set(d, 126))) {}

  HWY_INLINE V operator()(D d, V x) const {
    const hn::RebindToUnsigned<D> bits;
    // The last bits of the sum are the exponent of the power's whole part.
    const V shifted = hn::Add(x, shift_);
    const V power = small_power_of_two(d, hn::Sub(x, hn::Sub(shifted, shift_)));
    const V whole = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, shifted)));
    return hn::IfThenZeroElse(hn::Lt(x, least_), hn::Mul(power, whole));
  }

 private:
  V shift_, least_;
};
inline constexpr float kLargestBase = 0x1p20F;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V power_of_two(D d, V x) {
  return PowersOfTwo<D>(d, hn::Zero(d))(d, x);
}

// A head's keys of one range, in blocks: [block][term][kKeyBlock].
struct KeyBlocks {
  KeyRange range;

  uint32_t count() const { return (range.end - range.begin + kKeyBlock - 1) / kKeyBlock; }
  KeyRange keys(uint32_t block) const {
    const uint32_t first = range.begin + block * kKeyBlock;
    return {first, std::min(first + kKeyBlock, range.end)};
  }
  // Copies `terms` columns from `col` on of a field's rows from `row` on.
  void copy(const FieldView& from, uint32_t row, uint32_t col, uint32_t terms, float* to) const {
    for (uint32_t b = 0; b < count(); ++b, to += size_t{terms} * kKeyBlock)
      copy_terms(row_lines(from, row + keys(b).begin, keys(b).size(), col, terms), to, kKeyBlock);
  }
  size_t floats(uint32_t terms) const { return size_t{count()} * terms * kKeyBlock; }
  size_t offset(uint32_t key, uint32_t terms) const {
    const uint32_t at = key - range.begin;
    return size_t{at / kKeyBlock} * terms * kKeyBlock + at % kKeyBlock;
  }
};

// Copies columns of rows, times a factor, to panels of rows: [panel][column][kPanelRows], zeros beyond the
// rows.
inline void copy_query_panels(const FieldView& from, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols,
                              float factor, float* to) {
  const PanelFloats d;
  const size_t floats = size_t{cols} * round_up(rows, kPanelRows);
  copy_panels(row_lines(from, row, rows, col, cols), to);
  const PanelVector scale = hn::Set(d, factor);
  for (size_t i = 0; i < floats; i += kPanelLanes) hn::Store(hn::Mul(hn::Load(d, to + i), scale), d, to + i);
}

// A block of queries of one head of a sequence.
struct QueryBlock {
  uint32_t sequence, head;
  uint32_t row;       // first row in the field
  uint32_t position;  // position in the sequence
  uint32_t rows;
  int32_t ids[kQueryBlock] = {};
  int32_t least_id = 0, most_id = 0;

  QueryBlock(const AttentionProblem& p, uint32_t of_sequence, uint32_t of_head, uint32_t first_row,
             uint32_t first_position, uint32_t count)
      : sequence(of_sequence), head(of_head), row(first_row), position(first_position), rows(count) {
    if (!p.has_ids()) return;
    for (uint32_t i = 0; i < rows; ++i) ids[i] = static_cast<int32_t>(p.query_id(sequence, position + i));
    least_id = *std::min_element(ids, ids + rows);
    most_id = *std::max_element(ids, ids + rows);
  }

  uint32_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

// Scores of blocks of queries and keys, in units of log 2: [panel][key][kPanelRows].
class ScoreBlocks {
 public:
  ScoreBlocks(const program::Vertex& v, const AttentionProblem& problem) : v_(v), p_(problem) {
    if (p_.has_dropout()) draws_ = p_.draws();
  }

  // Operands and buffers for the scores of a block of queries.
  struct Operands {
    const float* queries;  // [panel][term][kPanelRows]
    const float* keys;     // blocks of KeyBlocks
    float* scores;         // kBlockScores
    float* more;           // a second buffer of kBlockScores
  };

  // Calls multiply(keys), which computes the scores of a range of keys within a block, and visit(keys,
  // factors) with the scores of each range of keys, within a block, to which any of the queries attends;
  // factors are dropout's factors of the probabilities, null without dropout.
  template <class Multiply, class Visit>
  void each(const QueryBlock& queries, const KeyBlocks& blocks, const Operands& of, const Multiply& scores_of,
            const Visit& visit) const {
    const KeyRange reach = p_.reach(queries.position, queries.position + queries.rows);
    for (uint32_t b = 0; b < blocks.count(); ++b) {
      const KeyRange keys = attended(queries, blocks.keys(b), reach);
      if (keys.empty()) continue;
      scores_of(keys);
      if (p_.has_bias()) add_bias(queries, keys, of.more, of.scores);
      if (is_cut(queries, keys)) cut(queries, keys, of.scores);
      if (p_.has_ids() && !have_one_id(queries, keys)) match(queries, keys, of.scores);
      if (p_.has_dropout()) draw(queries, keys, of.more);
      visit(keys, p_.has_dropout() ? of.more : nullptr);
    }
  }

  // Visits the scores of each range of keys, computed in FP32.
  template <class Visit>
  void each(const QueryBlock& queries, const KeyBlocks& blocks, const Operands& of,
            const Visit& visit) const {
    each(
        queries, blocks, of,
        [&](KeyRange keys) {
          multiply(queries, of.queries, p_.size, of.keys + blocks.offset(keys.begin, p_.size), keys,
                   of.scores);
        },
        visit);
  }

  // products[panel][key][kPanelRows] of panels of queries and a block's keys.
  static void multiply(const QueryBlock& queries, const float* panels, uint32_t terms, const float* block,
                       KeyRange keys, float* products) {
    run_micro_tiles<kAlongRow>(MicroTile<float>{panels, size_t{terms} * kPanelRows, block, kKeyBlock, terms,
                                                products, kBlockPanel, false, panels},
                               queries.panels(), keys.size(), [](uint32_t, uint32_t) {});
  }

  static void drop(const QueryBlock& queries, KeyRange keys, const float* factors, float* values) {
    const PanelFloats d;
    if (factors == nullptr) return;
    for (uint32_t p = 0; p < queries.panels(); ++p)
      for (size_t i = p * kBlockPanel; i < p * kBlockPanel + size_t{keys.size()} * kPanelRows;
           i += kPanelLanes)
        hn::Store(hn::Mul(hn::Load(d, values + i), hn::Load(d, factors + i)), d, values + i);
  }

 private:
  // The range of a block's keys, from the first to the last, to which any query attends by limits and ids.
  // The first key is even, so that sums of pairs of keys do not depend on the keys to which other queries
  // attend.
  KeyRange attended(const QueryBlock& queries, KeyRange keys, KeyRange reach) const {
    const uint32_t first = keys.begin;
    keys = {std::max(keys.begin, reach.begin), std::min(keys.end, reach.end)};
    const auto is_attended = [&](uint32_t key) {
      const auto id = static_cast<int32_t>(p_.key_id(queries.sequence, key));
      return id != 0 && id >= queries.least_id && id <= queries.most_id;
    };
    if (p_.has_ids()) {
      while (!keys.empty() && !is_attended(keys.begin)) ++keys.begin;
      while (!keys.empty() && !is_attended(keys.end - 1)) --keys.end;
    }
    if (!keys.empty() && keys.begin > first) keys.begin -= keys.begin % 2;
    return keys;
  }

  // Whether all queries attend to all keys, as far as ids tell.
  bool have_one_id(const QueryBlock& queries, KeyRange keys) const {
    if (queries.least_id != queries.most_id || queries.least_id == 0) return false;
    for (uint32_t key = keys.begin; key < keys.end; ++key)
      if (static_cast<int32_t>(p_.key_id(queries.sequence, key)) != queries.least_id) return false;
    return true;
  }

  // Copies values by query and key to lines[panel][key][kPanelRows].
  static void copy_scores(const QueryBlock& queries, const Lines& from, float* to) {
    for (uint32_t p = 0; p < queries.panels(); ++p) {
      const uint32_t begin = p * kPanelRows, count = std::min(kPanelRows, queries.rows - begin);
      copy_terms(from.part(begin, count, 0, from.terms), to + p * kBlockPanel, kPanelRows);
    }
  }

  void add_bias(const QueryBlock& queries, KeyRange keys, float* bias, float* scores) const {
    const PanelFloats d;
    const FieldView& field = v_.fields[attention_input::bias];
    Lines lines = row_lines(field, p_.bias_row(queries.sequence, queries.head, queries.position),
                            queries.rows, keys.begin, keys.size());
    lines.line_step *= p_.bias_query_step();
    copy_scores(queries, lines, bias);
    const PanelVector unit = hn::Set(d, kLog2E);
    const PanelVector least = hn::Set(d, std::numeric_limits<float>::lowest() / 4);
    const PanelVector none = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (uint32_t p = 0; p < queries.panels(); ++p)
      for (size_t i = p * kBlockPanel; i < p * kBlockPanel + size_t{keys.size()} * kPanelRows;
           i += kPanelLanes) {
        const PanelVector b = hn::Load(d, bias + i);
        // The least finite numbers stay finite: keys are hidden only by minus infinity.
        const PanelVector finite = hn::IfThenElse(hn::And(hn::Lt(b, least), hn::Gt(b, none)), least, b);
        hn::Store(hn::MulAdd(finite, unit, hn::Load(d, scores + i)), d, scores + i);
      }
  }

  void draw(const QueryBlock& queries, KeyRange keys, float* factors) const {
    const PanelFloats d;
    const PanelVector keep = hn::Set(d, p_.keep()), factor = hn::Div(hn::Set(d, 1.0F), keep);
    HWY_ALIGN float rows[kQueryBlock][kKeyBlock];
    for (uint32_t i = 0; i < queries.rows; ++i)
      each_draw(draws_, p_.pair(queries.sequence, queries.head, queries.position + i) + keys.begin,
                keys.size(), [&](size_t first, const uint32_t* words, size_t count) HWY_ATTR {
                  for (size_t j = 0; j < count; j += kPanelLanes)
                    hn::StoreU(hn::IfThenElseZero(draws_below(d, words + j, keep), factor), d,
                               rows[i] + first + j);
                });
    copy_scores(
        queries,
        {reinterpret_cast<const std::byte*>(rows), Type::f32, kKeyBlock, 1, queries.rows, keys.size()},
        factors);
  }

  // Whether the window leaves out some pair of the block.
  bool is_cut(const QueryBlock& queries, KeyRange keys) const {
    if (!p_.has_window()) return false;
    const KeyRange first = p_.reach(queries.position, queries.position + 1);
    const uint32_t last_query = queries.position + queries.rows;
    const KeyRange last = p_.reach(last_query - 1, last_query);
    return std::max(first.begin, last.begin) > keys.begin || std::min(first.end, last.end) < keys.end;
  }

  template <class Allowed>
  static void keep(const QueryBlock& queries, KeyRange keys, float* scores, const Allowed& allowed) {
    const PanelFloats d;
    const auto none = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (uint32_t p = 0; p < queries.panels(); ++p)
      for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes) {
        const auto mask = allowed(p * kPanelRows + lane);
        for (uint32_t j = 0; j < keys.size(); ++j) {
          float* score = scores + p * kBlockPanel + j * kPanelRows + lane;
          hn::StoreU(hn::IfThenElse(hn::RebindMask(d, mask(j)), hn::LoadU(d, score), none), d, score);
        }
      }
  }

  void cut(const QueryBlock& queries, KeyRange keys, float* scores) const {
    const hn::RebindToSigned<PanelFloats> d;
    int32_t begins[kQueryBlock], ends[kQueryBlock];
    for (uint32_t i = 0; i < kQueryBlock; ++i) {
      const KeyRange range = p_.reach(queries.position + i, queries.position + i + 1);
      begins[i] = static_cast<int32_t>(range.begin) - static_cast<int32_t>(keys.begin);
      ends[i] = static_cast<int32_t>(range.end) - static_cast<int32_t>(keys.begin);
    }
    keep(queries, keys, scores, [&](size_t i) HWY_ATTR {
      const auto begin = hn::LoadU(d, begins + i), end = hn::LoadU(d, ends + i);
      return [=](uint32_t j) HWY_ATTR {
        const auto at = hn::Set(hn::RebindToSigned<PanelFloats>(), static_cast<int32_t>(j));
        return hn::AndNot(hn::Lt(at, begin), hn::Lt(at, end));
      };
    });
  }

  void match(const QueryBlock& queries, KeyRange keys, float* scores) const {
    const hn::RebindToSigned<PanelFloats> d;
    keep(queries, keys, scores, [&](size_t i) HWY_ATTR {
      const auto id = hn::LoadU(d, queries.ids + i);
      const auto is_some = hn::Ne(id, hn::Zero(d));
      return [=, this, &queries](uint32_t j) HWY_ATTR {
        const auto other = static_cast<int32_t>(p_.key_id(queries.sequence, keys.begin + j));
        return hn::And(is_some, hn::Eq(id, hn::Set(hn::RebindToSigned<PanelFloats>(), other)));
      };
    });
  }

  const program::Vertex& v_;
  const AttentionProblem& p_;
  Draws draws_;
};

// Distance of rows, in floats, which are stored densely for the sake of the L1 cache.
inline size_t row_floats(uint32_t cols) { return round_up(cols, kPanelRows); }
inline void copy_close(const FieldView& from, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols,
                       float* to) {
  copy_terms(col_lines(from, row, rows, col, cols), to, row_floats(cols));
}

// Columns of a panel of rows, each of which is contiguous.
template <class T>
void store_columns(const float* panel, uint32_t rows, uint32_t cols, T* to, int64_t col_step) {
  for (uint32_t c = 0; c < cols; ++c, panel += kPanelRows, to += col_step)
    each_vector(rows, [&](size_t i, size_t some)
                          HWY_ATTR { store_some(hn::LoadU(PanelFloats(), panel + i), to + i, some); });
}

// Writes columns of rows from panels: [panel][column][kPanelRows].
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
