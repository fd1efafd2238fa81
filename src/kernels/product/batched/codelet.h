// Batched products of matrices that a program computes.
#pragma once

#include <cstdint>

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Some rows and columns of y = a · b, for matrices of a batch that lie one below the other: y has "m" rows
/// per matrix, of which the vertex has the rows from "row" on, possibly of several matrices. a has the same
/// rows; or if "transpose_a" its transpose, k rows for each matrix that the vertex has rows of. b has k rows
/// for each of these matrices and the columns of y; or if "transpose_b" its transpose, "n" rows per matrix,
/// of which the vertex's begin at "col". All are f32, f16 or bf16; sums are FP32, rounded once.
#define TESSERA_BATCHED_PRODUCT_FIELDS(X) \
  X(a)                                    \
  X(b) X(y, .access = program::Access::out)
#define TESSERA_BATCHED_PRODUCT_PARAMS(X) X(m) X(n) X(transpose_a) X(transpose_b) X(row) X(col)

#define TESSERA_BATCHED_CODELETS(X)                                                                        \
  X(batched_product, TESSERA_BATCHED_PRODUCT_FIELDS, TESSERA_BATCHED_PRODUCT_PARAMS, batched_product_simd, \
    900)

TESSERA_POSITIONS(batched_product_param, TESSERA_BATCHED_PRODUCT_PARAMS)
TESSERA_DECLARE_FAMILY(batched, TESSERA_BATCHED_CODELETS)
TESSERA_BATCHED_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// The part of a vertex in one matrix of the batch.
struct BatchedPart {
  program::FieldView a, b, y;  ///< a with its rows of y, or all of its transpose; b whole
  uint32_t row = 0;            ///< row of the matrix that is y's first
};

/// The sizes of a vertex of batched_product.
class BatchedSizes {
 public:
  explicit BatchedSizes(const program::Vertex& v);

  uint32_t matrices() const { return matrices_; }  ///< number of matrices of which it has rows
  uint32_t terms() const { return terms_; }
  bool transposes_a() const { return transposes_a_; }
  bool transposes_b() const { return transposes_b_; }
  uint32_t col() const { return col_; }
  BatchedPart part(uint32_t matrix) const;

 private:
  const program::Vertex& v_;
  uint32_t m_, row_, col_;
  bool transposes_a_, transposes_b_;
  uint32_t matrices_ = 0, terms_ = 0, b_rows_ = 0;
};

}  // namespace tessera::kernels
