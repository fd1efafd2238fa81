#include "ops/map/rearrange.h"

#include "kernels/map/rearrange/codelet.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const RearrangeProblem& p) {
  constexpr size_t kDimensions = 5;
  const size_t missing = kDimensions - p.sizes.size();
  std::vector<int64_t> sizes(missing, 1), row_steps(missing), col_steps(missing);
  uint32_t rows = 1;
  for (size_t d = 0; d < p.sizes.size(); ++d) {
    sizes.push_back(p.sizes[d]);
    row_steps.push_back(static_cast<int64_t>(p.steps[d] / p.cols));
    col_steps.push_back(static_cast<int64_t>(p.steps[d] % p.cols));
    if (d + 1 < p.sizes.size()) rows *= p.sizes[d];
  }
  const uint32_t cols = p.sizes.empty() ? 1 : p.sizes.back();
  MapOperation operation{
      .codelet = &kernels::rearrange_codelet, .phase = program::Phase::rearrange, .rows = rows, .cols = cols};
  operation.operands = {{"in", p.type, Role::input, p.rows, p.cols, false, false},
                        {"out", p.type, Role::output, rows, cols}};
  operation.params.assign(sizes.begin() + 1, sizes.end());
  operation.params.insert(operation.params.end(), row_steps.begin(), row_steps.end());
  operation.params.insert(operation.params.end(), col_steps.begin(), col_steps.end());
  operation.takes_origin = true;
  return operation;
}

}  // namespace tessera::ops
