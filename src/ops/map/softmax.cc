#include "ops/map/softmax.h"

#include <tessera/error.h>

#include "kernels/common/element.h"
#include "kernels/map/softmax/codelet.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const SoftmaxCrossEntropyProblem& p) {
  if (p.classes == 0) throw UsageError("a softmax needs at least one class");
  MapOperation operation{.codelet = &kernels::softmax_cross_entropy_codelet, .rows = 1, .cols = p.columns};
  operation.operands = {{"logits", Type::f32, Role::input, p.classes, p.columns, false, true},
                        {"labels", Type::u32, Role::input, 1, p.columns},
                        {"gradient", Type::f32, Role::output, p.classes, p.columns, false, true},
                        {"loss", Type::f32, Role::output, 1, p.columns}};
  operation.params = {kernels::param_of(p.scale)};
  return operation;
}

}  // namespace tessera::ops
