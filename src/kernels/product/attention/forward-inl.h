// Attention of one vertex: the softmax is corrected as further blocks of keys bring larger scores.
#if defined(TESSERA_ATTENTION_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ATTENTION_FORWARD_INL_H_
#undef TESSERA_ATTENTION_FORWARD_INL_H_
#else
#define TESSERA_ATTENTION_FORWARD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/common/math-inl.h"
#include "kernels/common/thread_buffer.h"
#include "kernels/product/attention/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class AttentionForward {
 public:
  explicit AttentionForward(const program::Vertex& v) : v_(v), p_(v), scores_(v, p_) {}

  void run() const {
    if (p_.keys == 0) return attention_reference(v_);
    const uint32_t parts = (p_.queries + kPartQueries - 1) / kPartQueries;
    program::share_work(v_.helpers, p_.sequences * p_.heads * parts, nullptr, [&](uint32_t i, std::byte*) {
      const uint32_t sequence = i / parts / p_.heads, head = i / parts % p_.heads, part = i % parts;
      const AttentionProblem::Rows rows = p_.rows_of(sequence);
      const uint32_t begin = std::max(rows.position, part * kPartQueries);
      const uint32_t end = std::min(rows.position + rows.end - rows.begin, (part + 1) * kPartQueries);
      if (begin < end) attend(sequence, head, rows.begin + begin - rows.position, begin, end);
    });
  }

 private:
  // Queries that a thread takes at a time.
  static constexpr uint32_t kPartQueries = 128;

  // What is known of a block of queries after some keys.
  struct State {
    float* result;  // [panel][column of v][kPanelRows], times the sum of powers
    HWY_ALIGN float most[kQueryBlock];
    HWY_ALIGN float sums[kQueryBlock];
    bool is_first = true;
  };

  struct Buffers {
    float *keys, *queries, *scores, *bias, *result, *values;

    Buffers(const AttentionProblem& p, const FieldView& v, const KeyBlocks& blocks) {
      const size_t keys_size = blocks.floats(p.size), queries_size = size_t{p.size} * kQueryBlock,
                   scores_size = kQueryPanels * kBlockPanel, result_size = size_t{p.value_size} * kQueryBlock;
      keys = thread_buffer(keys_size + queries_size + 2 * scores_size + result_size +
                           WideRows::floats(v, blocks.range.end - blocks.range.begin, p.value_size));
      queries = keys + keys_size;
      scores = queries + queries_size;
      bias = scores + scores_size;
      result = bias + scores_size;
      values = result + result_size;
    }
  };

  // Queries [begin, end) of a sequence, which lie from `row` on.
  void attend(uint32_t sequence, uint32_t head, uint32_t row, uint32_t begin, uint32_t end) const {
    using namespace attention_field;
    KeyBlocks blocks{p_.reach(begin, end)};
    blocks.range.begin -= blocks.range.begin % kKeyBlock;  // the same blocks whatever the part
    const uint32_t kv_head = head / p_.shared, first = sequence * p_.keys + blocks.range.begin;
    const Buffers buffers(p_, v_.fields[attention_field::v], blocks);
    blocks.copy(v_.fields[k], sequence * p_.keys, kv_head * p_.size, p_.size, buffers.keys);
    const WideRows values(v_.fields[attention_field::v], first, blocks.range.end - blocks.range.begin,
                          kv_head * p_.value_size, p_.value_size, buffers.values);
    for (uint32_t query = begin; query < end; query += kQueryBlock, row += kQueryBlock) {
      const QueryBlock queries(p_, sequence, head, row, query, std::min(kQueryBlock, end - query));
      attend(queries, blocks, buffers, values);
    }
  }

  void attend(const QueryBlock& queries, const KeyBlocks& blocks, const Buffers& buffers,
              const WideRows& values) const {
    using namespace attention_field;
    copy_query_panels(v_.fields[q], queries.row, queries.rows, queries.head * p_.size, p_.size,
                      p_.scale * kLog2E, buffers.queries);
    State state{buffers.result, {}, {}};
    std::fill(state.most, state.most + kQueryBlock, -std::numeric_limits<float>::infinity());
    std::fill(state.sums, state.sums + kQueryBlock, 0.0F);
    const KeyRange reach = p_.reach(queries.position, queries.position + queries.rows);
    for (uint32_t b = 0; b < blocks.count(); ++b) {
      const uint32_t key = blocks.first(b), keys = blocks.keys(b);
      if (key >= reach.end || key + keys <= reach.begin || !scores_.may_attend(queries, key, keys)) continue;
      scores_.compute(queries, buffers.queries, buffers.keys + blocks.floats_before(b, p_.size), key, keys,
                      buffers.bias, buffers.scores);
      add_block(queries, keys, values.data + size_t{key - blocks.range.begin} * values.step, values.step,
                buffers.scores, state);
    }
    finish(queries, state);
  }

  // Makes scores powers, and adds their products with the values.
  void add_block(const QueryBlock& queries, uint32_t keys, const float* values, size_t step, float* scores,
                 State& state) const {
    const uint32_t panels = ScoreBlocks::panels_of(queries);
    for (uint32_t p = 0; p < panels; ++p)
      for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes)
        raise(scores + p * kBlockPanel + lane, keys, p, lane, state);
    run_micro_tiles<kAlongRow>(MicroTile<float>{scores, kBlockPanel, values, step, keys, state.result,
                                                size_t{p_.value_size} * kPanelRows, !state.is_first, scores},
                               panels, p_.value_size, [](uint32_t, uint32_t) {});
    state.is_first = false;
  }

  // Of a vector of queries.
  void raise(float* scores, uint32_t keys, uint32_t panel, size_t lane, State& state) const {
    const PanelFloats d;
    const auto none = hn::Set(d, -std::numeric_limits<float>::infinity());
    float *most = state.most + panel * kPanelRows + lane, *sums = state.sums + panel * kPanelRows + lane;
    const PanelVector before = hn::LoadU(d, most);
    PanelVector m0 = before, m1 = before;
    uint32_t j = 0;
    for (; j + 2 <= keys; j += 2) {
      m0 = hn::Max(m0, hn::LoadU(d, scores + j * kPanelRows));
      m1 = hn::Max(m1, hn::LoadU(d, scores + (j + 1) * kPanelRows));
    }
    if (j < keys) m0 = hn::Max(m0, hn::LoadU(d, scores + j * kPanelRows));
    const PanelVector now = hn::Max(m0, m1);
    const PanelVector base = hn::IfThenElse(hn::Eq(now, none), hn::Zero(d), now);
    PanelVector s0 = hn::Zero(d), s1 = hn::Zero(d);
    const auto power_at = [&](uint32_t key) HWY_ATTR {
      const PanelVector power =
          power_of_two(PanelFloats(), hn::Sub(hn::LoadU(PanelFloats(), scores + key * kPanelRows), base));
      hn::StoreU(power, PanelFloats(), scores + key * kPanelRows);
      return power;
    };
    for (j = 0; j + 2 <= keys; j += 2) {
      s0 = hn::Add(s0, power_at(j));
      s1 = hn::Add(s1, power_at(j + 1));
    }
    if (j < keys) s0 = hn::Add(s0, power_at(j));
    const PanelVector shrink = power_of_two(d, hn::Sub(before, base));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sums), shrink, hn::Add(s0, s1)), d, sums);
    hn::StoreU(now, d, most);
    if (state.is_first || hn::AllTrue(d, hn::Eq(shrink, hn::Set(d, 1.0F)))) return;
    float* result = state.result + panel * size_t{p_.value_size} * kPanelRows + lane;
    for (uint32_t i = 0; i < p_.value_size; ++i, result += kPanelRows)
      hn::StoreU(hn::Mul(hn::LoadU(d, result), shrink), d, result);
  }

  void finish(const QueryBlock& queries, State& state) const {
    using namespace attention_field;
    const PanelFloats d;
    if (state.is_first) std::fill(state.result, state.result + size_t{p_.value_size} * kQueryBlock, 0.0F);
    for (uint32_t p = 0; p < ScoreBlocks::panels_of(queries); ++p)
      for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes) {
        float* sums = state.sums + p * kPanelRows + lane;
        float* most = state.most + p * kPanelRows + lane;
        const PanelVector sum = hn::LoadU(d, sums);
        const auto is_none = hn::Eq(sum, hn::Zero(d));
        const PanelVector factor = hn::IfThenZeroElse(is_none, hn::Div(hn::Set(d, 1.0F), sum));
        float* result = state.result + p * size_t{p_.value_size} * kPanelRows + lane;
        for (uint32_t i = 0; i < p_.value_size; ++i, result += kPanelRows)
          hn::StoreU(hn::Mul(hn::LoadU(d, result), factor), d, result);
        const PanelVector logarithm =
            hn::Mul(hn::Add(hn::LoadU(d, most), hn::Log2(d, sum)), hn::Set(d, kLn2));
        hn::StoreU(hn::IfThenElse(is_none, hn::Set(d, kNoLogarithm), logarithm), d, most);
      }
    store_query_panels(state.result, v_.fields[y], queries.row, queries.rows, queries.head * p_.value_size,
                       p_.value_size);
    const FieldView& to = v_.fields[lse];
    for (uint32_t i = 0; i < queries.rows; ++i)
      row_of<float>(to, queries.row + i)[queries.head * to.col_stride] = state.most[i];
  }

  const program::Vertex& v_;
  AttentionProblem p_;
  ScoreBlocks scores_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
