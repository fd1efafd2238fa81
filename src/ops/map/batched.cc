#include "ops/map/batched.h"

#include <cstdint>

#include "kernels/product/batched/codelet.h"
#include "ops/types.h"

namespace tessera::ops {

MapOperation operation_of(const BatchedProblem& p) {
  require_float(p.type, "a product of two matrices");
  const uint32_t rows = p.matrices * p.m;
  MapOperation operation{.codelet = &kernels::batched_product_codelet,
                         .rows = rows,
                         .cols = p.n,
                         .params = {p.m, p.n, p.transpose_a ? 1 : 0, p.transpose_b ? 1 : 0},
                         .takes_origin = true};
  MapOperand a{.name = "a", .type = p.type, .rows = rows, .cols = p.k, .split_cols = false};
  if (p.transpose_a) {
    a.rows = p.matrices * p.k;
    a.cols = p.m;
    a.rows_per_row = p.k;
    a.row_group = p.m;
  }
  MapOperand b{.name = "b",
               .type = p.type,
               .rows = p.matrices * p.k,
               .cols = p.n,
               .rows_per_row = p.k,
               .row_group = p.m};
  if (p.transpose_b) {
    b.rows = p.matrices * p.n;
    b.cols = p.k;
    b.rows_per_row = p.n;
    b.split_cols = false;
  }
  operation.operands = {a, b, {"y", p.type, program::Role::output, rows, p.n}};
  return operation;
}

}  // namespace tessera::ops
