#include "ops/map/dropout.h"

#include "kernels/common/element.h"
#include "kernels/map/dropout/codelet.h"
#include "ops/types.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const DropoutProblem& p) {
  require_float(p.type, "dropout");
  if (!(p.keep > 0 && p.keep <= 1))
    throw UsageError(
        fmt::format("dropout keeps elements with probability {}: it must be above 0 and at most 1", p.keep));
  MapOperation operation{.codelet = &kernels::dropout_codelet, .rows = p.rows, .cols = p.cols};
  operation.operands = {{"in", p.type, Role::input, p.rows, p.cols},
                        {"step", Type::u32, Role::input, 1, 1 + p.substream_words, false, false},
                        {"out", p.type, Role::output, p.rows, p.cols}};
  const uint32_t row_step = p.transposed ? 1 : p.cols;
  const uint32_t col_step = p.transposed ? p.rows : 1;
  operation.params = {static_cast<int64_t>(p.seed), p.operation, kernels::param_of(p.keep), row_step,
                      col_step};
  operation.takes_origin = true;
  return operation;
}

}  // namespace tessera::ops
