#include "ops/map/depthwise.h"

#include "kernels/common/element.h"
#include "kernels/map/depthwise/codelet.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const DepthwiseProblem& problem) {
  const PatchesProblem& p = problem.of;
  const auto fixed = [&](const char* name, uint32_t rows, uint32_t cols) {
    return MapOperand{name, p.type, Role::input, rows, cols, false, false};
  };
  MapOperand bias = fixed("bias", 1, p.channels);
  if (!problem.bias) {
    const std::shared_ptr<std::byte[]> zeros(new std::byte[p.channels * size_of(p.type)]());
    bias.role = Role::constant;
    bias.contents = {zeros, zeros.get()};
  }
  const uint32_t in = p.samples * p.window.positions(), positions = p.samples * p.window.out_positions();
  const uint32_t rows = p.transposed ? p.channels : positions, cols = p.transposed ? positions : p.channels;
  return {.codelet = &kernels::depthwise_codelet,
          .rows = rows,
          .cols = 1,
          .operands = {fixed("x", p.transposed ? p.channels : in, p.transposed ? in : p.channels),
                       fixed("w", p.channels, p.window.taps()),
                       std::move(bias),
                       window_operand(p.window),
                       {"out", p.type, Role::output, rows, cols, true, false}},
          .params = {kernels::param_of(problem.low), kernels::param_of(problem.high), p.transposed ? 1 : 0},
          .takes_origin = true};
}

}  // namespace tessera::ops
