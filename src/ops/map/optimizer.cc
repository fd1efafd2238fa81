#include "ops/map/optimizer.h"

#include "kernels/map/optimizer/codelet.h"
#include "ops/types.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const MomentumProblem& p) {
  require_float(p.type, "a step of momentum");
  MapOperation operation{.codelet = &kernels::momentum_codelet, .rows = p.rows, .cols = p.cols};
  operation.operands = {{"gradient", p.type, Role::input, p.rows, p.cols},
                        {"rates", Type::f32, Role::input, 1, 2, false, false},
                        {"velocity", p.type, Role::inout, p.rows, p.cols},
                        {"weight", p.type, Role::inout, p.rows, p.cols}};
  return operation;
}

}  // namespace tessera::ops
