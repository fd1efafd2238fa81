#include "ops/map/attention.h"

#include <utility>

#include "kernels/common/element.h"
#include "kernels/product/attention/codelet.h"
#include "ops/types.h"

namespace tessera::ops {
namespace {

using program::Role;

/// Operands by rows of q and by head of k.
class AttentionOperands {
 public:
  AttentionOperands(const AttentionProblem& p, MapOperation& operation, bool whole_sequences)
      : p_(p), operation_(operation), whole_sequences_(whole_sequences) {
    operation.rows = whole_sequences ? p.sequences : p.sequences * p.queries;
    operation.cols = p.kv_heads;
  }

  void add_of_queries(const char* name, Type type, Role role, uint32_t cols_per_head,
                      bool transposed = false) {
    const uint32_t shared = p_.heads / p_.kv_heads;
    add({.name = name,
         .type = type,
         .role = role,
         .rows = p_.sequences * p_.queries,
         .cols = p_.heads * cols_per_head,
         .rows_per_row = whole_sequences_ ? p_.queries : 1,
         .cols_per_col = shared * cols_per_head,
         .transposed = transposed});
  }
  void add_of_sequences(const char* name, Type type, Role role, uint32_t rows, uint32_t cols, bool by_head,
                        uint32_t cols_per_head = 1, bool transposed = false) {
    add({.name = name,
         .type = type,
         .role = role,
         .rows = p_.sequences * rows,
         .cols = cols,
         .split_cols = by_head,
         .rows_per_row = rows,
         .row_group = whole_sequences_ ? 1 : p_.queries,
         .cols_per_col = cols_per_head,
         .transposed = transposed});
  }
  /// Every vertex has all of it; an empty one stands for an operand that there is not.
  void add_whole(bool is_given, const char* name, Type type, uint32_t rows, uint32_t cols) {
    add({.name = name,
         .type = type,
         .role = is_given ? Role::input : Role::constant,
         .rows = is_given ? rows : 0,
         .cols = is_given ? cols : 0,
         .split_rows = false,
         .split_cols = false});
  }
  void add_inputs() {
    add_of_queries("q", p_.type, Role::input, p_.size, p_.q_transposed);
    add_of_sequences("k", p_.type, Role::input, p_.keys, p_.kv_heads * p_.size, true, p_.size,
                     p_.k_transposed);
    add_of_sequences("v", p_.type, Role::input, p_.keys, p_.kv_heads * p_.value_size, true, p_.value_size,
                     p_.v_transposed);
    if (p_.has_ids) {
      add_of_sequences("query_ids", Type::u32, Role::input, 1, p_.queries, false);
      add_of_sequences("key_ids", Type::u32, Role::input, 1, p_.keys, false);
    } else {
      add_whole(false, "query_ids", Type::u32, 0, 0);
      add_whole(false, "key_ids", Type::u32, 0, 0);
    }
    add_whole(p_.has_bias, "bias", p_.type, p_.bias_rows(), p_.keys);
    add_whole(p_.has_dropout, "step", Type::u32, 1, 1 + p_.substream_words);
  }

 private:
  /// Rows and columns are those of tokens and features.
  void add(MapOperand operand) {
    if (operand.transposed) std::swap(operand.rows, operand.cols);
    operation_.operands.push_back(std::move(operand));
  }

  const AttentionProblem& p_;
  MapOperation& operation_;
  bool whole_sequences_;
};

int64_t transposed_bits(const AttentionProblem& p) {
  using namespace kernels::attention_field;
  int64_t bits = 0;
  const auto add = [&](bool transposed, size_t field) {
    if (transposed) bits |= kernels::transposed_bit(field);
  };
  add(p.q_transposed, q);
  add(p.k_transposed, k);
  add(p.v_transposed, v);
  add(p.y_transposed, y);
  return bits;
}

MapOperation operation_for(const AttentionProblem& p, const program::Codelet& codelet) {
  require_float(p.type, "attention");
  MapOperation operation{.codelet = &codelet, .takes_origin = true};
  using namespace kernels;
  const int64_t bias_of = (p.bias_of_queries ? kBiasOfQueries : 0) | (p.bias_of_heads ? kBiasOfHeads : 0) |
                          (p.bias_of_sequences ? kBiasOfSequences : 0);
  operation.params = {p.size,
                      p.value_size,
                      p.queries,
                      p.keys,
                      p.heads,
                      p.left,
                      p.right,
                      p.offset,
                      param_of(p.scale),
                      bias_of,
                      static_cast<int64_t>(p.seed),
                      p.operation,
                      param_of(p.keep),
                      transposed_bits(p)};
  return operation;
}

}  // namespace

MapOperation operation_of(const AttentionProblem& p) {
  MapOperation operation = operation_for(p, kernels::attention_codelet);
  AttentionOperands operands(p, operation, false);
  operands.add_inputs();
  operands.add_of_queries("lse", Type::f32, Role::output, 1);
  operands.add_of_queries("y", p.type, Role::output, p.value_size, p.y_transposed);
  return operation;
}

MapOperation operation_of(const AttentionGradientProblem& problem) {
  const AttentionProblem& p = problem.of;
  MapOperation operation = operation_for(p, kernels::attention_gradient_codelet);
  AttentionOperands operands(p, operation, true);
  operands.add_inputs();
  operands.add_of_queries("y", p.type, Role::input, p.value_size);
  operands.add_of_queries("lse", Type::f32, Role::input, 1);
  operands.add_of_queries("dy", p.type, Role::input, p.value_size);
  operands.add_of_sequences("dk", p.type, Role::output, p.keys, p.kv_heads * p.size, true, p.size);
  operands.add_of_sequences("dv", p.type, Role::output, p.keys, p.kv_heads * p.value_size, true,
                            p.value_size);
  operands.add_of_queries("dq", p.type, Role::output, p.size);
  return operation;
}

}  // namespace tessera::ops
