#include "ops/map/attention.h"

#include <utility>

#include "kernels/common/element.h"
#include "kernels/product/attention/codelet.h"
#include "ops/types.h"

namespace tessera::ops {
namespace {

using program::Role;

using kernels::AttentionRowsOf;

/// Operands by some of the rows, and by head of k.
class AttentionOperands {
 public:
  AttentionOperands(const AttentionProblem& p, MapOperation& operation, AttentionRowsOf rows)
      : p_(p), operation_(operation), rows_(rows) {
    operation.rows = p.sequences * rows_of_sequence();
    operation.cols = p.kv_heads;
  }

  void add_of_queries(const char* name, Type type, Role role, uint32_t cols_per_head,
                      bool transposed = false) {
    MapOperand operand{.name = name,
                       .type = type,
                       .role = role,
                       .cols = p_.heads * cols_per_head,
                       .cols_per_col = p_.heads / p_.kv_heads * cols_per_head,
                       .transposed = transposed};
    add(std::move(operand), p_.queries, rows_ == AttentionRowsOf::queries);
  }
  void add_of_keys(const char* name, Role role, uint32_t cols_per_head, bool transposed = false) {
    MapOperand operand{.name = name,
                       .type = p_.type,
                       .role = role,
                       .cols = p_.kv_heads * cols_per_head,
                       .cols_per_col = cols_per_head,
                       .transposed = transposed};
    add(std::move(operand), p_.keys, rows_ == AttentionRowsOf::keys);
  }
  void add_ids(const char* name, uint32_t tokens) {
    if (!p_.has_ids) return add_whole(false, name, Type::u32, 0, 0);
    add({.name = name, .type = Type::u32, .cols = tokens, .split_cols = false}, 1, false);
  }
  /// Adds an operand that every vertex takes as a whole; an empty operand stands for a missing one.
  void add_whole(bool is_given, const char* name, Type type, uint32_t rows, uint32_t cols) {
    operation_.operands.push_back({.name = name,
                                   .type = type,
                                   .role = is_given ? Role::input : Role::constant,
                                   .rows = is_given ? rows : 0,
                                   .cols = is_given ? cols : 0,
                                   .split_rows = false,
                                   .split_cols = false});
  }
  void add_inputs() {
    add_of_queries("q", p_.type, Role::input, p_.size, p_.q_transposed);
    add_of_keys("k", Role::input, p_.size, p_.k_transposed);
    add_of_keys("v", Role::input, p_.value_size, p_.v_transposed);
    add_ids("query_ids", p_.queries);
    add_ids("key_ids", p_.keys);
    add_whole(p_.has_bias, "bias", p_.type, p_.bias_rows(), p_.keys);
    add_whole(p_.has_dropout, "step", Type::u32, 1, 1 + p_.substream_words);
  }

 private:
  /// Rows of the partitioned matrix per sequence.
  uint32_t rows_of_sequence() const {
    switch (rows_) {
      case AttentionRowsOf::queries: return p_.queries;
      case AttentionRowsOf::keys: return p_.keys;
      case AttentionRowsOf::sequences: break;
    }
    return 1;
  }

  /// An operand of `rows` rows per sequence. A vertex has the rows that it computes, or all rows of its
  /// sequences. Rows and columns are those of tokens and features.
  void add(MapOperand operand, uint32_t rows, bool is_divided) {
    operand.rows = p_.sequences * rows;
    operand.rows_per_row = is_divided ? 1 : rows;
    operand.row_group = is_divided ? 1 : rows_of_sequence();
    if (operand.transposed) std::swap(operand.rows, operand.cols);
    operation_.operands.push_back(std::move(operand));
  }

  const AttentionProblem& p_;
  MapOperation& operation_;
  AttentionRowsOf rows_;
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

const program::Codelet& gradient_codelet(AttentionRowsOf rows) {
  switch (rows) {
    case AttentionRowsOf::queries: return kernels::attention_query_gradient_codelet;
    case AttentionRowsOf::keys: return kernels::attention_key_gradient_codelet;
    case AttentionRowsOf::sequences: break;
  }
  return kernels::attention_gradient_codelet;
}

AttentionProblem of_any_stream(AttentionProblem problem) {
  problem.seed = problem.operation = 0;
  return problem;
}

}  // namespace

MapOperation operation_of(const AttentionProblem& p) {
  MapOperation operation = operation_for(p, kernels::attention_codelet);
  AttentionOperands operands(p, operation, AttentionRowsOf::queries);
  operands.add_inputs();
  operands.add_of_queries("lse", Type::f32, Role::output, 1);
  operands.add_of_queries("y", p.type, Role::output, p.value_size, p.y_transposed);
  return operation;
}

MapOperation operation_of(const AttentionGradientProblem& problem) {
  const AttentionProblem& p = problem.of;
  MapOperation operation = operation_for(p, gradient_codelet(problem.rows));
  AttentionOperands operands(p, operation, problem.rows);
  operands.add_inputs();
  if (problem.rows == AttentionRowsOf::keys)
    operands.add_of_queries("means", Type::f32, Role::input, 1);
  else
    operands.add_of_queries("y", p.type, Role::input, p.value_size);
  operands.add_of_queries("lse", Type::f32, Role::input, 1);
  operands.add_of_queries("dy", p.type, Role::input, p.value_size);
  if (problem.rows == AttentionRowsOf::queries) {
    operands.add_of_queries("means", Type::f32, Role::output, 1);
  } else {
    operands.add_of_keys("dk", Role::output, p.size);
    operands.add_of_keys("dv", Role::output, p.value_size);
  }
  if (problem.rows != AttentionRowsOf::keys) operands.add_of_queries("dq", p.type, Role::output, p.size);
  return operation;
}

MapPlan plan(const Builder& builder, AttentionProblem problem, const std::vector<Operand>& operands) {
  return plan_map(builder, operation_of(of_any_stream(problem)), operands);
}
MapPlan plan(const Builder& builder, AttentionGradientProblem problem, const std::vector<Operand>& operands) {
  problem.of = of_any_stream(problem.of);
  return plan_map(builder, operation_of(problem), operands);
}

}  // namespace tessera::ops
