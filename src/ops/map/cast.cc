#include "ops/map/cast.h"

#include "kernels/map/cast/codelet.h"
#include "ops/types.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const CastProblem& p) {
  for (const Type type : {p.from, p.to}) require_number(type, "a cast");
  MapOperation operation{.codelet = &kernels::cast_codelet, .rows = p.rows, .cols = p.cols};
  operation.operands = {{"in", p.from, Role::input, p.rows, p.cols},
                        {"out", p.to, Role::output, p.rows, p.cols}};
  return operation;
}

}  // namespace tessera::ops
