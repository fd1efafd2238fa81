// The problem of an attention vertex, by sequence and head.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/isa.h"
#include "kernels/common/draws.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/product/attention/codelet.h"

namespace tessera::kernels {

/// A vertex whose fields all have tokens as rows. A dimension of one element counts as contiguous.
class AttentionRows {
 public:
  explicit AttentionRows(const program::Vertex& v)
      : vertex_{{fields_.data(), v.fields.size()}, {params_.data(), v.params.size()}, v.clock, v.helpers} {
    std::ranges::copy(v.params, params_.begin());
    const int64_t bits = std::exchange(params_[attention_param::transposed], 0);
    for (size_t f = 0; f < v.fields.size(); ++f) {
      program::FieldView& field = fields_[f];
      field = (bits & transposed_bit(f)) != 0 ? transposed(v.fields[f]) : v.fields[f];
      if (field.cols <= 1) field.col_stride = 1;
      if (field.rows <= 1 && field.col_stride != 1) field.row_stride = 1;
    }
  }
  AttentionRows(const AttentionRows&) = delete;
  AttentionRows& operator=(const AttentionRows&) = delete;

  const program::Vertex& vertex() const { return vertex_; }

 private:
  std::array<program::FieldView, program::kMaxFields> fields_;
  std::array<int64_t, program::kMaxParams> params_;
  program::Vertex vertex_;
};

/// Whether attention multiplies by the BF16 instructions of `isa`.
inline bool multiplies_bf16(const program::Vertex& vertex, Isa isa) {
  using namespace attention_input;
  return has_fast_bf16_products(isa) && vertex.fields[q].type == Type::bf16 &&
         vertex.fields[k].type == Type::bf16 && vertex.fields[v].type == Type::bf16;
}

/// Keys [begin, end).
struct KeyRange {
  uint32_t begin = 0, end = 0;

  bool empty() const { return begin >= end; }
  uint32_t size() const { return end - begin; }
};

/// Sizes, masks and boxes of a vertex of AttentionRows. Sequences, heads and queries count from the vertex's
/// first.
class AttentionProblem {
 public:
  explicit AttentionProblem(const program::Vertex& v, AttentionRowsOf rows = AttentionRowsOf::queries)
      : v_(v),
        size(param(attention_param::size)),
        value_size(param(attention_param::value_size)),
        queries(param(attention_param::queries)),
        keys(param(attention_param::keys)),
        scale(float_of(v.params[attention_param::scale])),
        left_(v.params[attention_param::left]),
        right_(v.params[attention_param::right]),
        offset_(v.params[attention_param::offset]) {
    const program::FieldView &q = v.fields[attention_input::q], &k = v.fields[attention_input::k];
    if (q.empty() || k.empty() || keys == 0) return;
    heads = q.cols / size;
    shared = heads / (k.cols / size);
    const uint32_t row = param(attention_param::row);
    switch (rows) {
      case AttentionRowsOf::queries: first_ = row % queries, first_sequence_ = row / queries; break;
      case AttentionRowsOf::sequences: first_sequence_ = row; break;
      case AttentionRowsOf::keys: first_key_ = row % keys, first_sequence_ = row / keys; break;
    }
    sequences = rows == AttentionRowsOf::keys ? (first_key_ + k.rows + keys - 1) / keys
                                              : (first_ + q.rows + queries - 1) / queries;
  }

  /// Rows [begin, end) of q that belong to a sequence, and the position in it of the first row.
  struct Rows {
    uint32_t begin = 0, end = 0, position = 0;
  };
  Rows rows_of(uint32_t sequence) const {
    const uint32_t begin = sequence == 0 ? 0 : sequence * queries - first_;
    const uint32_t end = std::min((sequence + 1) * queries - first_, v_.fields[attention_input::q].rows);
    return {begin, end, sequence == 0 ? first_ : 0};
  }

  /// The vertex's keys of a sequence; and the row of its first key, modulo 2^32, in the fields of keys.
  KeyRange keys_of(uint32_t sequence) const {
    const uint32_t begin = sequence == 0 ? first_key_ : 0;
    return {begin, std::min(keys, v_.fields[attention_input::k].rows - first_key_row(sequence))};
  }
  uint32_t first_key_row(uint32_t sequence) const { return sequence * keys - first_key_; }

  /// The keys to which queries [begin, end) of a sequence may attend by their position.
  KeyRange reach(uint32_t begin, uint32_t end) const {
    const int64_t low = left_ < 0 ? 0 : begin + offset_ - left_;
    const int64_t high = right_ < 0 ? keys : int64_t{end} + offset_ + right_;
    const auto first = static_cast<uint32_t>(std::clamp<int64_t>(low, 0, keys));
    return {first, std::max(first, static_cast<uint32_t>(std::clamp<int64_t>(high, 0, keys)))};
  }
  bool has_window() const { return left_ >= 0 || right_ >= 0; }
  bool has_ids() const { return !v_.fields[attention_input::query_ids].empty(); }
  bool has_bias() const { return !v_.fields[attention_input::bias].empty(); }
  /// In a dry run ids may not be known.
  bool knows_ids() const {
    return has_ids() && v_.fields[attention_input::query_ids].data != nullptr &&
           v_.fields[attention_input::key_ids].data != nullptr;
  }
  uint32_t query_id(uint32_t sequence, uint32_t query) const {
    return id(attention_input::query_ids, sequence, query);
  }
  uint32_t key_id(uint32_t sequence, uint32_t key) const {
    return id(attention_input::key_ids, sequence, key);
  }
  bool attends(uint32_t sequence, uint32_t query, uint32_t key) const {
    const KeyRange range = reach(query, query + 1);
    if (key < range.begin || key >= range.end) return false;
    return !has_ids() || (query_id(sequence, query) == key_id(sequence, key) && key_id(sequence, key) != 0);
  }

  /// Row of the bias for a query, and its distance to the next query's row.
  uint32_t bias_row(uint32_t sequence, uint32_t head, uint32_t query) const {
    uint32_t row = 0;
    if (bias_differs(kBiasOfSequences)) row = first_sequence_ + sequence;
    if (bias_differs(kBiasOfHeads)) row = row * param(attention_param::heads) + first_head() + head;
    return bias_differs(kBiasOfQueries) ? row * queries + query : row;
  }
  uint32_t bias_query_step() const { return bias_differs(kBiasOfQueries) ? 1 : 0; }

  bool has_dropout() const { return !v_.fields[attention_input::step].empty(); }
  float keep() const { return float_of(v_.params[attention_param::keep]); }
  Draws draws() const {
    return draws_at(v_.fields[attention_input::step], static_cast<uint64_t>(v_.params[attention_param::seed]),
                    param(attention_param::operation));
  }
  /// Number, for dropout, of the pair of a query and the first key.
  uint64_t pair(uint32_t sequence, uint32_t head, uint32_t query) const {
    const uint64_t heads_before =
        uint64_t{first_sequence_ + sequence} * param(attention_param::heads) + first_head() + head;
    return (heads_before * queries + query) * keys;
  }

  /// Number of pairs of query and key that positions allow, over all heads, as if queries were spread evenly
  /// over the sequence: threads share unequal work.
  double pairs() const;

 private:
  uint32_t param(size_t i) const { return static_cast<uint32_t>(v_.params[i]); }
  uint32_t first_head() const { return param(attention_param::col) * shared; }
  bool bias_differs(int64_t by) const { return (v_.params[attention_param::bias_of] & by) != 0; }
  uint32_t id(size_t field, uint32_t sequence, uint32_t position) const {
    const program::FieldView& ids = v_.fields[field];
    return load<uint32_t>(address_of(ids, sequence, position));
  }

  const program::Vertex& v_;

 public:
  uint32_t size, value_size, queries, keys;
  float scale;
  uint32_t heads = 0, sequences = 0;
  uint32_t shared = 1;  ///< number of heads of q per head of k and v

 private:
  int64_t left_, right_, offset_;
  uint32_t first_ = 0, first_key_ = 0, first_sequence_ = 0;
};

}  // namespace tessera::kernels
