// What a window over images sees, and the reverse. On a host.
#pragma once

#include "kernels/common/window.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// Images of f32, f16 or bf16: positions × channels, or the transpose. What a window sees: its positions ×
/// the channels of all taps, tap by tap, or the transpose.
struct PatchesProblem {
  Type type = Type::f32;
  uint32_t samples = 1;
  uint32_t channels = 0;
  kernels::Window window = {};
  bool transposed = false;
};

/// The transpose of that map: sums of what lies at the same place.
struct FoldProblem {
  PatchesProblem of;
};

/// Operands "x", "out".
MapOperation operation_of(const PatchesProblem& problem);
MapOperation operation_of(const FoldProblem& problem);

/// A window as an operand of its own.
MapOperand window_operand(const kernels::Window& window);

}  // namespace tessera::ops
