// Scaled dot-product attention, and its gradients.
#pragma once

#include <cstdint>

#include "kernels/product/attention/codelet.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// Sizes and mask, as in kernels/product/attention/codelet.h. q is sequences · queries × heads · size, k
/// sequences · keys × kv_heads · size, and v sequences · keys × kv_heads · value_size.
struct AttentionProblem {
  Type type = Type::f32;
  uint32_t sequences = 1;
  uint32_t queries = 0;
  uint32_t keys = 0;
  uint32_t heads = 1;
  uint32_t kv_heads = 1;
  uint32_t size = 0;
  uint32_t value_size = 0;
  float scale = 1;
  int64_t left = -1;
  int64_t right = -1;
  int64_t offset = 0;
  bool has_ids = false;
  bool has_bias = false;
  bool bias_of_sequences = false;  ///< whether the bias differs between sequences, heads, queries
  bool bias_of_heads = false;
  bool bias_of_queries = false;
  bool has_dropout = false;
  float keep =
      1;  ///< probability with which dropout keeps an element; its random stream follows: ops/map/dropout.h
  uint64_t seed = 0;
  uint32_t operation = 0;
  uint32_t substream_words = 0;
  bool q_transposed = false;  ///< whether a matrix is stored as its transpose
  bool k_transposed = false;
  bool v_transposed = false;
  bool y_transposed = false;

  uint32_t bias_rows() const {
    return (bias_of_sequences ? sequences : 1) * (bias_of_heads ? heads : 1) *
           (bias_of_queries ? queries : 1);
  }
};

/// Operands "q", "k", "v", then, where the problem has them, "query_ids" (sequences × queries), "key_ids"
/// (sequences × keys), "bias" (bias_rows × keys), "step" (a row of 1 + substream_words), then "lse"
/// (sequences · queries × heads), "y".
MapOperation operation_of(const AttentionProblem& problem);

/// The gradients of whole sequences, or on tiles the gradients of queries or of keys alone, without sums.
struct AttentionGradientProblem {
  AttentionProblem of;
  kernels::AttentionRowsOf rows = kernels::AttentionRowsOf::sequences;
};

/// Operands: the inputs of the forward operation, not transposed, then "y", "lse", "dy", and the computed
/// ones of "dk", "dv" and "dq". The gradient of queries has "means" before "dq", sequences · queries × heads,
/// which the gradient of keys takes instead of "y".
MapOperation operation_of(const AttentionGradientProblem& problem);

/// A plan holds for any random stream: calls differ in their streams.
MapPlan plan(const Builder& builder, AttentionProblem problem, const std::vector<Operand>& operands);
MapPlan plan(const Builder& builder, AttentionGradientProblem problem, const std::vector<Operand>& operands);

}  // namespace tessera::ops
