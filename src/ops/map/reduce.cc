#include "ops/map/reduce.h"

#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "ops/types.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const ReduceProblem& p) {
  require_float(p.from, "a reduction");
  require_float(p.to, "a reduction");
  MapOperation operation{.codelet = &kernels::reduce_sum_codelet,
                         .phase = program::Phase::reduce,
                         .rows = 1,
                         .cols = p.elements};
  operation.operands = {{"partials", p.from, Role::input, p.partials, p.elements, false, true},
                        {"out", p.to, Role::output, 1, p.elements}};
  operation.params = {kernels::param_of(p.scale)};
  return operation;
}

}  // namespace tessera::ops
