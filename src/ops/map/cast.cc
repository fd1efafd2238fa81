#include "ops/map/cast.h"

#include "kernels/map/cast/codelet.h"
#include "ops/types.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const CastProblem& p) {
  if (p.from != Type::u8) require_number(p.from, "a cast");
  require_number(p.to, "a cast");
  MapOperation operation{.codelet = &kernels::cast_codelet, .rows = p.rows, .cols = p.cols};
  operation.operands = {{"in", p.from, Role::input, p.rows, p.cols},
                        {"out", p.to, Role::output, p.rows, p.cols}};
  return operation;
}

MapOperation operation_of(const StochasticCastProblem& p) {
  require_float(p.from, "a stochastic cast");
  if (p.to != Type::f16 && p.to != Type::bf16)
    throw UsageError(fmt::format("a stochastic cast to {} is not possible: use f16 or bf16", name_of(p.to)));
  MapOperation operation{.codelet = &kernels::stochastic_cast_codelet, .rows = p.rows, .cols = p.cols};
  operation.operands = {{"in", p.from, Role::input, p.rows, p.cols},
                        {"step", Type::u32, Role::input, 1, 1 + p.substream_words, false, false},
                        {"out", p.to, Role::output, p.rows, p.cols}};
  operation.params = {static_cast<int64_t>(p.seed), p.operation,     p.order.row_step, p.order.group,
                      p.order.group_step,           p.order.col_step};
  operation.takes_origin = true;
  return operation;
}

}  // namespace tessera::ops
