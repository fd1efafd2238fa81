#include "ops/map/rearrange.h"

#include "kernels/map/rearrange/codelet.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const RearrangeProblem& p) {
  constexpr size_t kDimensions = 5;
  const size_t missing = kDimensions - p.sizes.size();
  std::vector<int64_t> sizes(missing, 1), row_steps(missing), col_steps(missing);
  uint32_t rows = 1, cols = 1;
  for (size_t d = 0; d < p.sizes.size(); ++d) {
    sizes.push_back(p.sizes[d]);
    row_steps.push_back(static_cast<int64_t>(p.steps[d] / p.cols));
    col_steps.push_back(static_cast<int64_t>(p.steps[d] % p.cols));
    (d + p.column_sizes < p.sizes.size() ? rows : cols) *= p.sizes[d];
  }
  const bool splits_columns = p.column_sizes == 1;
  MapOperation operation{.codelet = &kernels::rearrange_codelet,
                         .phase = program::Phase::rearrange,
                         .rows = rows,
                         .cols = splits_columns ? cols : 1};
  operation.operands = {{"in", p.type, Role::input, p.rows, p.cols, false, false},
                        {"out", p.type, Role::output, rows, cols, true, splits_columns}};
  operation.params.assign(sizes.begin() + 1, sizes.end());
  operation.params.insert(operation.params.end(), row_steps.begin(), row_steps.end());
  operation.params.insert(operation.params.end(), col_steps.begin(), col_steps.end());
  operation.takes_origin = true;
  return operation;
}

}  // namespace tessera::ops
