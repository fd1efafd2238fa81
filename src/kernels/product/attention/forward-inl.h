// Attention of one vertex: the softmax is rescaled when further blocks of keys have larger scores.
#if defined(TESSERA_ATTENTION_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ATTENTION_FORWARD_INL_H_
#undef TESSERA_ATTENTION_FORWARD_INL_H_
#else
#define TESSERA_ATTENTION_FORWARD_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/common/math-inl.h"
#include "kernels/common/thread_buffer.h"
#include "kernels/product/attention/bf16-inl.h"
#include "kernels/product/attention/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a head that are read or written soon. They are too far apart for hardware prefetchers, and are
// prefetched during the computation on other rows.
class RowsAhead {
 public:
  RowsAhead(const FieldView& field, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols)
      : field_(field), row_(row), end_(field.col_stride == 1 ? row + rows : row), col_(col), cols_(cols) {}

  void fetch(uint32_t rows) {
    constexpr size_t kLine = 64;
    const size_t bytes = cols_ * size_of(field_.type);
    for (; rows > 0 && row_ < end_; --rows, ++row_) {
      const std::byte* from = address_of(field_, row_, col_);
      for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i, 0, 2);
    }
  }

 private:
  const FieldView& field_;
  uint32_t row_, end_, col_, cols_;
};

class AttentionForward {
 public:
  explicit AttentionForward(const program::Vertex& v)
      : v_(v), p_(v), scores_(v, p_), is_bf16_(Bf16Attention::can_multiply(v)) {}

  void run() const {
    if (p_.keys == 0) return attention_reference(v_);
    const uint32_t heads = p_.sequences * p_.heads, size = part_queries(heads),
                   parts = (p_.queries + size - 1) / size;
    program::share_work(v_.helpers, heads * parts, nullptr, [&](uint32_t i, std::byte*) {
      const uint32_t sequence = i / parts / p_.heads, head = i / parts % p_.heads, part = i % parts;
      const AttentionProblem::Rows rows = p_.rows_of(sequence);
      const uint32_t begin = std::max(rows.position, part * size);
      const uint32_t end = std::min(rows.position + rows.end - rows.begin, (part + 1) * size);
      if (begin < end) attend(sequence, head, rows.begin + begin - rows.position, begin, end);
    });
  }

 private:
  // Number of queries that a thread takes at a time: large enough for few copies of keys, small enough for
  // threads to share the work.
  uint32_t part_queries(uint32_t heads) const {
    constexpr uint32_t kParts = 32, kLeast = 128;
    const uint32_t parts = (kParts + heads - 1) / std::max(heads, 1U);
    return std::max(round_up((p_.queries + parts - 1) / parts, kQueryBlock), kLeast);
  }

  // The state of a block of queries after some of the keys.
  struct State {
    float* result;                      // [panel][column of v][kPanelRows], times the sum of powers
    HWY_ALIGN float base[kQueryBlock];  // of powers
    HWY_ALIGN float sums[kQueryBlock];
    bool is_first = true;
  };

  struct Buffers {
    float *keys, *values, *queries, *scores, *more, *result, *bf16;

    Buffers(const AttentionProblem& p, const KeyBlocks& blocks, bool is_bf16) {
      const size_t keys_size = is_bf16 ? 0 : blocks.floats(p.size),
                   values_size = is_bf16 ? 0 : blocks.range.size() * row_floats(p.value_size),
                   queries_size = is_bf16 ? 0 : size_t{p.size} * kQueryBlock,
                   bf16_size = is_bf16 ? Bf16Attention::floats(p, blocks.range.size()) : 0;
      keys = thread_buffer(keys_size + values_size + queries_size + 2 * kBlockScores +
                           size_t{p.value_size} * kQueryBlock + bf16_size);
      values = keys + keys_size;
      queries = values + values_size;
      scores = queries + queries_size;
      more = scores + kBlockScores;
      result = more + kBlockScores;
      bf16 = result + size_t{p.value_size} * kQueryBlock;
    }
  };

  // Computes queries [begin, end) of a sequence, whose rows begin at `row`.
  void attend(uint32_t sequence, uint32_t head, uint32_t row, uint32_t begin, uint32_t end) const {
    using namespace attention_field;
    KeyBlocks blocks{p_.reach(begin, end)};
    blocks.range.begin -= blocks.range.begin % kKeyBlock;  // the same blocks whatever the part
    const uint32_t kv_head = head / p_.shared, first = sequence * p_.keys;
    const Buffers buffers(p_, blocks, is_bf16_);
    const auto each_block = [&](const auto& attend_block) {
      for (uint32_t query = begin; query < end; query += kQueryBlock, row += kQueryBlock)
        attend_block(QueryBlock{p_, sequence, head, row, query, std::min(kQueryBlock, end - query)});
    };
    const FieldView &of_keys = v_.fields[k], &of_values = v_.fields[attention_field::v];
    if (is_bf16_) {
      Bf16Attention products(p_, blocks.range, buffers.bf16);
      products.copy_keys(of_keys, first + blocks.range.begin, kv_head * p_.size);
      products.copy_values(of_values, first + blocks.range.begin, kv_head * p_.value_size);
      return each_block([&](const QueryBlock& queries) { attend(queries, blocks, buffers, products); });
    }
    blocks.copy(of_keys, first, kv_head * p_.size, p_.size, buffers.keys);
    copy_close(of_values, first + blocks.range.begin, blocks.range.size(), kv_head * p_.value_size,
               p_.value_size, buffers.values);
    each_block([&](const QueryBlock& queries) { attend(queries, blocks, buffers); });
  }

  void attend(const QueryBlock& queries, const KeyBlocks& blocks, const Buffers& buffers) const {
    copy_query_panels(v_.fields[attention_field::q], queries.row, queries.rows, queries.head * p_.size,
                      p_.size, p_.scale * kLog2E, buffers.queries);
    const ScoreBlocks::Operands operands{buffers.queries, buffers.keys, buffers.scores, buffers.more};
    State state = state_of(buffers);
    Ahead ahead = ahead_of(queries);
    scores_.each(queries, blocks, operands, [&](KeyRange keys, const float* factors) HWY_ATTR {
      make_weights(queries, keys, factors, buffers, state, ahead);
      add_values(queries, keys, blocks, buffers, state);
    });
    finish(queries, state);
  }

  void attend(const QueryBlock& queries, const KeyBlocks& blocks, const Buffers& buffers,
              Bf16Attention& products) const {
    products.copy_queries(v_.fields[attention_field::q], queries.row, queries.rows, queries.head * p_.size);
    const ScoreBlocks::Operands operands{nullptr, nullptr, buffers.scores, buffers.more};
    State state = state_of(buffers);
    Ahead ahead = ahead_of(queries);
    scores_.each(
        queries, blocks, operands,
        [&](KeyRange keys) { products.multiply_keys(queries.rows, keys, buffers.scores); },
        [&](KeyRange keys, const float* factors) HWY_ATTR {
          make_weights(queries, keys, factors, buffers, state, ahead);
          products.multiply_values(queries.rows, keys, buffers.scores, !state.is_first, state.result);
          state.is_first = false;
        });
    finish(queries, state);
  }

  static State state_of(const Buffers& buffers) {
    State state{buffers.result, {}, {}};
    std::fill(state.base, state.base + kQueryBlock, -std::numeric_limits<float>::infinity());
    std::fill(state.sums, state.sums + kQueryBlock, 0.0F);
    return state;
  }

  using Ahead = std::array<RowsAhead, 2>;
  Ahead ahead_of(const QueryBlock& queries) const {
    using namespace attention_field;
    const uint32_t next = queries.row + queries.rows,
                   next_rows = std::min(kQueryBlock, v_.fields[q].rows - next);
    return {RowsAhead{v_.fields[y], queries.row, queries.rows, queries.head * p_.value_size, p_.value_size},
            RowsAhead{v_.fields[q], next, next_rows, queries.head * p_.size, p_.size}};
  }

  // Replaces scores by the weights of values, some of which are dropped.
  void make_weights(const QueryBlock& queries, KeyRange keys, const float* factors, const Buffers& buffers,
                    State& state, Ahead& ahead) const {
    for (RowsAhead& rows : ahead) rows.fetch(kPanelRows / 2);
    raise(queries, keys, buffers.scores, state);
    ScoreBlocks::drop(queries, keys, factors, buffers.scores);
  }

  void add_values(const QueryBlock& queries, KeyRange keys, const KeyBlocks& blocks, const Buffers& buffers,
                  State& state) const {
    const size_t step = row_floats(p_.value_size);
    run_micro_tiles<kAlongRow>(
        MicroTile<float>{buffers.scores, kBlockPanel,
                         buffers.values + (keys.begin - blocks.range.begin) * step, step, keys.size(),
                         state.result, size_t{p_.value_size} * kPanelRows, !state.is_first, buffers.scores},
        queries.panels(), p_.value_size, [](uint32_t, uint32_t) {});
    state.is_first = false;
  }

  // Replaces scores by powers.
  void raise(const QueryBlock& queries, KeyRange keys, float* scores, State& state) const {
    for (uint32_t p = 0; p < queries.panels(); ++p)
      for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes)
        raise(scores + p * kBlockPanel + lane, keys.size(), p, lane, state);
  }

  // Replaces the scores of a vector of queries.
  void raise(float* scores, uint32_t keys, uint32_t panel, size_t lane, State& state) const {
    const PanelFloats d;
    float *base = state.base + panel * kPanelRows + lane, *sums = state.sums + panel * kPanelRows + lane;
    const PanelVector before = hn::LoadU(d, base), now = new_base(before, largest(scores, keys));
    const auto is_none = hn::Eq(now, hn::Set(d, -std::numeric_limits<float>::infinity()));
    const PanelVector from = hn::IfThenZeroElse(is_none, now);
    PanelVector sum;
    if (hn::AllTrue(d, hn::Lt(hn::Abs(from), hn::Set(d, kLargestBase)))) {
      sum = raise(scores, keys, from);
    } else {
      for (uint32_t j = 0; j < keys; ++j)
        hn::StoreU(hn::Sub(hn::LoadU(d, scores + j * kPanelRows), from), d, scores + j * kPanelRows);
      sum = raise(scores, keys, hn::Zero(d));
    }
    if (hn::AllTrue(d, hn::Eq(before, now))) {
      hn::StoreU(hn::Add(hn::LoadU(d, sums), sum), d, sums);
      return;
    }
    const PanelVector shrink = power_of_two(d, hn::Sub(before, from));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sums), shrink, sum), d, sums);
    hn::StoreU(now, d, base);
    if (state.is_first) return;
    float* result = state.result + panel * size_t{p_.value_size} * kPanelRows + lane;
    for (uint32_t i = 0; i < p_.value_size; ++i, result += kPanelRows)
      hn::StoreU(hn::Mul(hn::LoadU(d, result), shrink), d, result);
  }

  static PanelVector largest(const float* scores, uint32_t keys) {
    const PanelFloats d;
    const auto none = hn::Set(d, -std::numeric_limits<float>::infinity());
    PanelVector m0 = none, m1 = none, m2 = none, m3 = none;
    const auto at = [&](uint32_t key)
                        HWY_ATTR { return hn::LoadU(PanelFloats(), scores + key * kPanelRows); };
    uint32_t j = 0;
    for (; j + 4 <= keys; j += 4) {
      m0 = hn::Max(m0, at(j));
      m1 = hn::Max(m1, at(j + 1));
      m2 = hn::Max(m2, at(j + 2));
      m3 = hn::Max(m3, at(j + 3));
    }
    for (; j < keys; ++j) m0 = hn::Max(m0, at(j));
    return hn::Max(hn::Max(m0, m1), hn::Max(m2, m3));
  }

  // Powers are of scores minus a base: a whole number, so that a new one changes them exactly, and kept until
  // powers would become large, since all results so far have to be rescaled with it.
  static PanelVector new_base(PanelVector before, PanelVector largest) {
    const PanelFloats d;
    constexpr float kLargestPower = 8;
    const auto is_large = hn::Gt(largest, hn::Add(before, hn::Set(d, kLargestPower)));
    return hn::IfThenElse(is_large, hn::Ceil(largest), before);
  }

  // Replaces scores by powers of them minus a base, and returns the sum.
  static PanelVector raise(float* scores, uint32_t keys, PanelVector base) {
    const PanelFloats d;
    const PowersOfTwo<PanelFloats> powers(d, base);
    const auto power_at = [&](uint32_t key) HWY_ATTR {
      const PanelVector power = powers(PanelFloats(), hn::LoadU(PanelFloats(), scores + key * kPanelRows));
      hn::StoreU(power, PanelFloats(), scores + key * kPanelRows);
      return power;
    };
    PanelVector s0 = hn::Zero(d), s1 = hn::Zero(d);
    uint32_t j = 0;
    for (; j + 2 <= keys; j += 2) {
      s0 = hn::Add(s0, power_at(j));
      s1 = hn::Add(s1, power_at(j + 1));
    }
    if (j < keys) s0 = hn::Add(s0, power_at(j));
    return hn::Add(s0, s1);
  }

  void finish(const QueryBlock& queries, State& state) const {
    using namespace attention_field;
    const PanelFloats d;
    if (state.is_first) std::fill(state.result, state.result + size_t{p_.value_size} * kQueryBlock, 0.0F);
    for (uint32_t p = 0; p < queries.panels(); ++p)
      for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes) {
        float* sums = state.sums + p * kPanelRows + lane;
        float* base = state.base + p * kPanelRows + lane;
        const PanelVector sum = hn::LoadU(d, sums);
        const auto is_none = hn::Eq(sum, hn::Zero(d));
        const PanelVector factor = hn::IfThenZeroElse(is_none, hn::Div(hn::Set(d, 1.0F), sum));
        float* result = state.result + p * size_t{p_.value_size} * kPanelRows + lane;
        for (uint32_t i = 0; i < p_.value_size; ++i, result += kPanelRows)
          hn::StoreU(hn::Mul(hn::LoadU(d, result), factor), d, result);
        const PanelVector logarithm = hn::MulAdd(hn::LoadU(d, base), hn::Set(d, kLn2), hn::Log(d, sum));
        hn::StoreU(hn::IfThenElse(is_none, hn::Set(d, kNoLogarithm), logarithm), d, base);
      }
    store_query_panels(state.result, v_.fields[y], queries.row, queries.rows, queries.head * p_.value_size,
                       p_.value_size);
    const FieldView& to = v_.fields[lse];
    for (uint32_t i = 0; i < queries.rows; ++i)
      row_of<float>(to, queries.row + i)[queries.head * to.col_stride] = state.base[i];
  }

  const program::Vertex& v_;
  AttentionProblem p_;
  ScoreBlocks scores_;
  bool is_bf16_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
