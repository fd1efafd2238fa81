// The gradients of attention of one vertex: a head of keys and values at a time, with all its queries.
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

// Where gradients go, and Σ dy · y, as far as they are wanted.
struct GradientTargets {
  const FieldView *dq = nullptr, *dk = nullptr, *dv = nullptr, *means = nullptr;
};

class AttentionGradient {
 public:
  AttentionGradient(const program::Vertex& v, AttentionRowsOf rows, const GradientTargets& to)
      : v_(v), to_(to), p_(v, rows), scores_(v, p_), has_means_(rows == AttentionRowsOf::keys) {}

  void run() const {
    const uint32_t kv_heads = p_.heads / p_.shared;
    program::share_work(v_.helpers, p_.sequences * kv_heads, nullptr,
                        [&](uint32_t i, std::byte*) { differentiate(i / kv_heads, i % kv_heads); });
  }

 private:
  // Buffers of a head of keys. Blocks are [block][column][kKeyBlock]; sums [panel of
  // columns][key][kPanelRows].
  struct KeyBuffers {
    float *k_blocks, *v_blocks, *k_rows, *k_sums, *v_sums;
  };
  // Buffers of a block of queries: panels of queries are [panel][column][kPanelRows], panels of columns
  // [panel][query][kPanelRows].
  struct QueryBuffers {
    float *q, *q_columns, *dy, *dy_columns, *dq, *scores, *ds, *more;
  };

  static size_t sums_of(const KeyBlocks& blocks, uint32_t cols) {
    return blocks.range.size() * row_floats(cols);
  }

  void differentiate(uint32_t sequence, uint32_t kv_head) const {
    using namespace attention_gradient_input;
    const KeyBlocks blocks{p_.keys_of(sequence)};
    const size_t k_sums = sums_of(blocks, p_.size), v_sums = sums_of(blocks, p_.value_size);
    const size_t q_size = size_t{p_.size} * kQueryBlock, q_columns = row_floats(p_.size) * kQueryBlock,
                 y_size = size_t{p_.value_size} * kQueryBlock,
                 y_columns = row_floats(p_.value_size) * kQueryBlock;
    float* next = thread_buffer(blocks.floats(p_.size) + blocks.floats(p_.value_size) + 2 * k_sums + v_sums +
                                2 * q_size + q_columns + y_size + y_columns + 3 * kBlockScores);
    const auto take = [&](size_t count) { return std::exchange(next, next + count); };
    const KeyBuffers of_keys{take(blocks.floats(p_.size)), take(blocks.floats(p_.value_size)), take(k_sums),
                             take(k_sums), take(v_sums)};
    const QueryBuffers of_queries{take(q_size), take(q_columns),    take(y_size),       take(y_columns),
                                  take(q_size), take(kBlockScores), take(kBlockScores), take(kBlockScores)};
    const uint32_t first = p_.first_key_row(sequence);
    blocks.copy(v_.fields[k], first, kv_head * p_.size, p_.size, of_keys.k_blocks);
    blocks.copy(v_.fields[v], first, kv_head * p_.value_size, p_.value_size, of_keys.v_blocks);
    copy_close(v_.fields[k], first + blocks.range.begin, blocks.range.size(), kv_head * p_.size, p_.size,
               of_keys.k_rows);
    std::fill(of_keys.k_sums, of_keys.k_sums + k_sums, 0.0F);
    std::fill(of_keys.v_sums, of_keys.v_sums + v_sums, 0.0F);
    const AttentionProblem::Rows all = p_.rows_of(sequence);
    for (uint32_t head = kv_head * p_.shared; head < (kv_head + 1) * p_.shared; ++head)
      for (uint32_t row = all.begin; row < all.end; row += kQueryBlock)
        differentiate(
            {p_, sequence, head, row, all.position + row - all.begin, std::min(kQueryBlock, all.end - row)},
            blocks, of_keys, of_queries);
    if (to_.dk == nullptr) return;
    store_sums(of_keys.k_sums, blocks.range, p_.scale, *to_.dk, first, kv_head * p_.size, p_.size);
    store_sums(of_keys.v_sums, blocks.range, 1, *to_.dv, first, kv_head * p_.value_size, p_.value_size);
  }

  void differentiate(const QueryBlock& queries, const KeyBlocks& blocks, const KeyBuffers& of_keys,
                     const QueryBuffers& of) const {
    using namespace attention_gradient_input;
    const uint32_t q_col = queries.head * p_.size, y_col = queries.head * p_.value_size;
    copy_query_panels(v_.fields[q], queries.row, queries.rows, q_col, p_.size, p_.scale * kLog2E, of.q);
    copy_panels(row_lines(v_.fields[dy], queries.row, queries.rows, y_col, p_.value_size), of.dy);
    copy_panels(col_lines(v_.fields[q], queries.row, queries.rows, q_col, p_.size), of.q_columns);
    copy_panels(col_lines(v_.fields[dy], queries.row, queries.rows, y_col, p_.value_size), of.dy_columns);
    HWY_ALIGN float lse_of[kQueryBlock] = {}, means[kQueryBlock] = {};
    note_logarithms(queries, lse_of);
    if (has_means_)
      note_means(queries, means);
    else
      compute_means(queries, means);
    std::fill(of.dq, of.dq + size_t{p_.size} * kQueryBlock, 0.0F);
    scores_.each(
        queries, blocks, {of.q, of_keys.k_blocks, of.scores, of.more},
        [&](KeyRange keys, const float* factors) HWY_ATTR {
          ScoreBlocks::multiply(queries, of.dy, p_.value_size,
                                of_keys.v_blocks + blocks.offset(keys.begin, p_.value_size), keys, of.ds);
          ScoreBlocks::drop(queries, keys, factors, of.ds);
          differentiate_softmax(queries, keys, lse_of, means, of.scores, of.ds);
          ScoreBlocks::drop(queries, keys, factors, of.scores);
          if (to_.dk != nullptr) {
            add_to_keys(of.dy_columns, p_.value_size, of.scores, queries, keys, blocks.range, of_keys.v_sums);
            add_to_keys(of.q_columns, p_.size, of.ds, queries, keys, blocks.range, of_keys.k_sums);
          }
          if (to_.dq != nullptr) add_to_queries(queries, keys, blocks.range, of_keys.k_rows, of);
        });
    if (to_.dq == nullptr) return;
    const PanelFloats d;
    for (size_t i = 0; i < size_t{p_.size} * kQueryBlock; i += kPanelLanes)
      hn::Store(hn::Mul(hn::Load(d, of.dq + i), hn::Set(d, p_.scale)), d, of.dq + i);
    store_query_panels(of.dq, *to_.dq, queries.row, queries.rows, q_col, p_.size);
  }

  void add_to_queries(const QueryBlock& queries, KeyRange keys, KeyRange all, const float* k_rows,
                      const QueryBuffers& of) const {
    const size_t step = row_floats(p_.size);
    run_micro_tiles<kAlongRow>(
        MicroTile<float>{of.ds, kBlockPanel, k_rows + (keys.begin - all.begin) * step, step, keys.size(),
                         of.dq, size_t{p_.size} * kPanelRows, true, of.ds},
        queries.panels(), p_.size, [](uint32_t, uint32_t) {});
  }

  // The number of a query of the block in a field with a column for each head.
  static float* of_query(const FieldView& field, const QueryBlock& queries, uint32_t i) {
    return row_of<float>(field, queries.row + i) + queries.head * field.col_stride;
  }

  // Stores the logarithms of the sums, in units of log 2.
  void note_logarithms(const QueryBlock& queries, float* lse_of) const {
    const FieldView& logarithms = v_.fields[attention_gradient_input::lse];
    for (uint32_t i = 0; i < queries.rows; ++i) lse_of[i] = kLog2E * *of_query(logarithms, queries, i);
  }

  // Stores Σ dy · y of each query as it is given.
  void note_means(const QueryBlock& queries, float* means) const {
    const FieldView& given = v_.fields[attention_key_gradient_field::means];
    for (uint32_t i = 0; i < queries.rows; ++i) means[i] = *of_query(given, queries, i);
  }

  // Computes Σ dy · y of each query.
  void compute_means(const QueryBlock& queries, float* means) const {
    using namespace attention_gradient_input;
    const PanelFloats d;
    const FieldView &results = v_.fields[y], &gradients = v_.fields[dy];
    const uint32_t col = queries.head * p_.value_size;
    with_float_type(results.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t i = 0; i < queries.rows; ++i) {
        const T* result = row_of<const T>(results, queries.row + i) + col;
        const T* gradient = row_of<const T>(gradients, queries.row + i) + col;
        PanelVector sum = hn::Zero(d);
        each_vector(p_.value_size, [&](size_t j, size_t count) HWY_ATTR {
          sum = hn::MulAdd(load_some(result + j, count), load_some(gradient + j, count), sum);
        });
        means[i] = hn::GetLane(hn::SumOfLanes(d, sum));
      }
    });
    for (uint32_t i = 0; to_.means != nullptr && i < queries.rows; ++i)
      *of_query(*to_.means, queries, i) = means[i];
  }

  // Replaces scores by probabilities, and ds by the gradient of the scores, without the scale.
  static void differentiate_softmax(const QueryBlock& queries, KeyRange keys, const float* lse_of,
                                    const float* means, float* scores, float* ds) {
    const PanelFloats d;
    for (uint32_t p = 0; p < queries.panels(); ++p)
      for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes) {
        const PanelVector base = hn::LoadU(d, lse_of + p * kPanelRows + lane);
        const PanelVector mean = hn::LoadU(d, means + p * kPanelRows + lane);
        for (uint32_t j = 0; j < keys.size(); ++j) {
          const size_t at = p * kBlockPanel + j * kPanelRows + lane;
          const PanelVector power = power_of_two(d, hn::Sub(hn::LoadU(d, scores + at), base));
          hn::StoreU(power, d, scores + at);
          hn::StoreU(hn::Mul(power, hn::Sub(hn::LoadU(d, ds + at), mean)), d, ds + at);
        }
      }
  }

  // sums[panel][key] += Σ over queries of columns[panel][query] · factors[query][key].
  void add_to_keys(const float* columns, uint32_t cols, const float* factors, const QueryBlock& queries,
                   KeyRange keys, KeyRange all, float* sums) const {
    const size_t column_panel = size_t{queries.rows} * kPanelRows,
                 sums_panel = size_t{all.size()} * kPanelRows;
    const uint32_t panels = (cols + kPanelRows - 1) / kPanelRows;
    for (uint32_t p = 0; p < panels; p += kDensePanels)
      run_micro_tiles<kInPanels>(
          MicroTile<float>{columns + p * column_panel, column_panel, factors, kBlockPanel, queries.rows,
                           sums + p * sums_panel + size_t{keys.begin - all.begin} * kPanelRows, sums_panel,
                           true, columns},
          std::min(kDensePanels, panels - p), keys.size(), [](uint32_t, uint32_t) {});
  }

  // `row` is the row of key 0, modulo 2^32.
  static void store_sums(const float* sums, KeyRange keys, float factor, const FieldView& to, uint32_t row,
                         uint32_t col, uint32_t cols) {
    const PanelFloats d;
    with_float_type(to.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t j = 0; j < keys.size(); ++j) {
        T* at = row_of<T>(to, row + keys.begin + j) + col;
        each_vector(cols, [&](size_t i, size_t count) HWY_ATTR {
          const float* from = sums + (i / kPanelRows * keys.size() + j) * kPanelRows + i % kPanelRows;
          store_some(hn::Mul(hn::LoadU(d, from), hn::Set(d, factor)), at + i, count);
        });
      }
    });
  }

  const program::Vertex& v_;
  GradientTargets to_;
  AttentionProblem p_;
  ScoreBlocks scores_;
  bool has_means_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
