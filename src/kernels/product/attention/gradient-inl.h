// The gradients of attention of one vertex: a head of keys and values at a time, with all queries of it.
#if defined(TESSERA_ATTENTION_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ATTENTION_GRADIENT_INL_H_
#undef TESSERA_ATTENTION_GRADIENT_INL_H_
#else
#define TESSERA_ATTENTION_GRADIENT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/common/thread_buffer.h"
#include "kernels/product/attention/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class AttentionGradient {
 public:
  explicit AttentionGradient(const program::Vertex& v) : v_(v), p_(v, true), scores_(v, p_) {}

  void run() const {
    if (p_.keys == 0 || p_.heads == 0) return attention_gradient_reference(v_);
    const uint32_t kv_heads = p_.heads / p_.shared;
    program::share_work(v_.helpers, p_.sequences * kv_heads, nullptr,
                        [&](uint32_t i, std::byte*) { differentiate(i / kv_heads, i % kv_heads); });
  }

 private:
  // Of a head of keys. Blocks are [block][column][kKeyBlock]; sums [panel of columns][key][kPanelRows].
  struct KeyBuffers {
    float *k_blocks, *v_blocks, *k_rows, *k_sums, *v_sums;
  };
  // Of a block of queries: panels of queries are [panel][column][kPanelRows], those of columns
  // [panel][query][kPanelRows].
  struct QueryBuffers {
    float *q, *q_columns, *dy, *dy_columns, *y, *dq, *scores, *ds, *bias;
  };

  size_t sums_of(uint32_t cols) const { return size_t{p_.keys} * round_up(cols, kPanelRows); }

  void differentiate(uint32_t sequence, uint32_t kv_head) const {
    using namespace attention_gradient_field;
    const FieldView& keys = v_.fields[k];
    const KeyBlocks blocks{{0, p_.keys}};
    const size_t q_size = size_t{p_.size} * kQueryBlock, y_size = size_t{p_.value_size} * kQueryBlock,
                 columns = size_t{kQueryBlock} *
                           (round_up(p_.size, kPanelRows) + round_up(p_.value_size, kPanelRows)),
                 scores = kQueryPanels * kBlockPanel;
    const size_t floats = blocks.floats(p_.size) + blocks.floats(p_.value_size) + sums_of(p_.size) +
                          sums_of(p_.value_size) + 2 * q_size + 2 * y_size + columns + 3 * scores;
    float* next = thread_buffer(floats + WideRows::floats(keys, p_.keys, p_.size));
    const auto take = [&](size_t count) { return std::exchange(next, next + count); };
    KeyBuffers of_keys{take(blocks.floats(p_.size)), take(blocks.floats(p_.value_size)), nullptr,
                       take(sums_of(p_.size)), take(sums_of(p_.value_size))};
    const QueryBuffers of_queries{
        take(q_size), take(size_t{kQueryBlock} * round_up(p_.size, kPanelRows)),
        take(y_size), take(size_t{kQueryBlock} * round_up(p_.value_size, kPanelRows)),
        take(y_size), take(q_size),
        take(scores), take(scores),
        take(scores)};
    of_keys.k_rows = next;
    const uint32_t first = sequence * p_.keys;
    blocks.copy(keys, first, kv_head * p_.size, p_.size, of_keys.k_blocks);
    blocks.copy(v_.fields[v], first, kv_head * p_.value_size, p_.value_size, of_keys.v_blocks);
    const WideRows rows(keys, first, p_.keys, kv_head * p_.size, p_.size, of_keys.k_rows);
    std::fill(of_keys.k_sums, of_keys.k_sums + sums_of(p_.size), 0.0F);
    std::fill(of_keys.v_sums, of_keys.v_sums + sums_of(p_.value_size), 0.0F);
    const AttentionProblem::Rows all = p_.rows_of(sequence);
    for (uint32_t head = kv_head * p_.shared; head < (kv_head + 1) * p_.shared; ++head)
      for (uint32_t row = all.begin; row < all.end; row += kQueryBlock) {
        const QueryBlock queries(p_, sequence, head, row, all.position + row - all.begin,
                                 std::min(kQueryBlock, all.end - row));
        differentiate(queries, blocks, rows, of_keys, of_queries);
      }
    store_sums(of_keys.k_sums, p_.scale, v_.fields[dk], first, kv_head * p_.size, p_.size);
    store_sums(of_keys.v_sums, 1, v_.fields[dv], first, kv_head * p_.value_size, p_.value_size);
  }

  void differentiate(const QueryBlock& queries, const KeyBlocks& blocks, const WideRows& rows,
                     const KeyBuffers& of_keys, const QueryBuffers& of) const {
    using namespace attention_gradient_field;
    const uint32_t q_col = queries.head * p_.size, y_col = queries.head * p_.value_size;
    copy_query_panels(v_.fields[q], queries.row, queries.rows, q_col, p_.size, p_.scale * kLog2E, of.q);
    copy_query_panels(v_.fields[dy], queries.row, queries.rows, y_col, p_.value_size, 1, of.dy);
    copy_query_panels(v_.fields[y], queries.row, queries.rows, y_col, p_.value_size, 1, of.y);
    copy_panels(col_lines(v_.fields[q], queries.row, queries.rows, q_col, p_.size), of.q_columns);
    copy_panels(col_lines(v_.fields[dy], queries.row, queries.rows, y_col, p_.value_size), of.dy_columns);
    HWY_ALIGN float lse_of[kQueryBlock] = {}, delta[kQueryBlock] = {};
    note_statistics(queries, of, lse_of, delta);
    std::fill(of.dq, of.dq + size_t{p_.size} * kQueryBlock, 0.0F);
    const KeyRange reach = p_.reach(queries.position, queries.position + queries.rows);
    for (uint32_t b = 0; b < blocks.count(); ++b) {
      const uint32_t key = blocks.first(b), keys = blocks.keys(b);
      if (key >= reach.end || key + keys <= reach.begin || !scores_.may_attend(queries, key, keys)) continue;
      scores_.compute(queries, of.q, of_keys.k_blocks + KeyBlocks::floats_before(b, p_.size), key, keys,
                      of.bias, of.scores);
      multiply(of.dy, p_.value_size, of_keys.v_blocks + KeyBlocks::floats_before(b, p_.value_size), queries,
               keys, of.ds);
      differentiate_softmax(queries, keys, lse_of, delta, of.scores, of.ds);
      add_to_keys(of.dy_columns, p_.value_size, of.scores, queries, key, keys, of_keys.v_sums);
      add_to_keys(of.q_columns, p_.size, of.ds, queries, key, keys, of_keys.k_sums);
      run_micro_tiles<kAlongRow>(
          MicroTile<float>{of.ds, kBlockPanel, rows.data + size_t{key} * rows.step, rows.step, keys, of.dq,
                           size_t{p_.size} * kPanelRows, true, of.ds},
          ScoreBlocks::panels_of(queries), p_.size, [](uint32_t, uint32_t) {});
    }
    const PanelFloats d;
    for (size_t i = 0; i < size_t{p_.size} * kQueryBlock; i += kPanelLanes)
      hn::Store(hn::Mul(hn::Load(d, of.dq + i), hn::Set(d, p_.scale)), d, of.dq + i);
    store_query_panels(of.dq, v_.fields[dq], queries.row, queries.rows, q_col, p_.size);
  }

  // The logarithm of the sums, in units of log 2, and Σ dy · y of each query.
  void note_statistics(const QueryBlock& queries, const QueryBuffers& of, float* lse_of, float* delta) const {
    using namespace attention_gradient_field;
    const PanelFloats d;
    const FieldView& statistics = v_.fields[lse];
    for (uint32_t i = 0; i < queries.rows; ++i)
      lse_of[i] =
          kLog2E * row_of<const float>(statistics, queries.row + i)[queries.head * statistics.col_stride];
    for (uint32_t p = 0; p < ScoreBlocks::panels_of(queries); ++p)
      for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes) {
        PanelVector sum = hn::Zero(d);
        const size_t first = size_t{p} * p_.value_size * kPanelRows + lane;
        for (size_t i = 0; i < p_.value_size; ++i)
          sum = hn::MulAdd(hn::LoadU(d, of.dy + first + i * kPanelRows),
                           hn::LoadU(d, of.y + first + i * kPanelRows), sum);
        hn::StoreU(sum, d, delta + p * kPanelRows + lane);
      }
  }

  // products[panel][key][kPanelRows] of panels of queries and a block of keys.
  void multiply(const float* panels, uint32_t terms, const float* block, const QueryBlock& queries,
                uint32_t keys, float* products) const {
    run_micro_tiles<kAlongRow>(MicroTile<float>{panels, size_t{terms} * kPanelRows, block, kKeyBlock, terms,
                                                products, kBlockPanel, false, panels},
                               ScoreBlocks::panels_of(queries), keys, [](uint32_t, uint32_t) {});
  }

  // Scores become probabilities, and ds their gradient, without the scale.
  static void differentiate_softmax(const QueryBlock& queries, uint32_t keys, const float* lse_of,
                                    const float* delta, float* scores, float* ds) {
    const PanelFloats d;
    for (uint32_t p = 0; p < ScoreBlocks::panels_of(queries); ++p)
      for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes) {
        const PanelVector base = hn::LoadU(d, lse_of + p * kPanelRows + lane);
        const PanelVector mean = hn::LoadU(d, delta + p * kPanelRows + lane);
        for (uint32_t j = 0; j < keys; ++j) {
          const size_t at = p * kBlockPanel + j * kPanelRows + lane;
          const PanelVector power = power_of_two(d, hn::Sub(hn::LoadU(d, scores + at), base));
          hn::StoreU(power, d, scores + at);
          hn::StoreU(hn::Mul(power, hn::Sub(hn::LoadU(d, ds + at), mean)), d, ds + at);
        }
      }
  }

  // sums[panel][key] += Σ over queries of columns[panel][query] · factors[query][key].
  void add_to_keys(const float* columns, uint32_t cols, const float* factors, const QueryBlock& queries,
                   uint32_t key, uint32_t keys, float* sums) const {
    const size_t column_panel = size_t{queries.rows} * kPanelRows, sums_panel = size_t{p_.keys} * kPanelRows;
    const uint32_t panels = (cols + kPanelRows - 1) / kPanelRows;
    for (uint32_t p = 0; p < panels; p += kDensePanels)
      run_micro_tiles<kInPanels>(
          MicroTile<float>{columns + p * column_panel, column_panel, factors, kBlockPanel, queries.rows,
                           sums + p * sums_panel + size_t{key} * kPanelRows, sums_panel, true, columns},
          std::min(kDensePanels, panels - p), keys, [](uint32_t, uint32_t) {});
  }

  void store_sums(const float* sums, float factor, const FieldView& to, uint32_t row, uint32_t col,
                  uint32_t cols) const {
    const PanelFloats d;
    with_float_type(to.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t j = 0; j < p_.keys; ++j) {
        T* at = row_of<T>(to, row + j) + col;
        each_vector(cols, [&](size_t i, size_t count) HWY_ATTR {
          const float* from = sums + (i / kPanelRows * p_.keys + j) * kPanelRows + i % kPanelRows;
          store_some(hn::Mul(hn::LoadU(d, from), hn::Set(d, factor)), at + i, count);
        });
      }
    });
  }

  const program::Vertex& v_;
  AttentionProblem p_;
  ScoreBlocks scores_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
