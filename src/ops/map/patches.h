// The elements under a window over images, and the adjoint. On a host.
#pragma once

#include "kernels/common/window.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// From images of f32, f16 or bf16, positions × channels, to the patches under a window, window positions ×
/// channels of all taps, tap by tap; or the transposes of both.
struct PatchesProblem {
  Type type = Type::f32;
  uint32_t samples = 1;
  uint32_t channels = 0;
  kernels::Window window = {};
  bool transposed = false;
};

/// The adjoint of patches: sums the patch elements taken from the same position of an image.
struct FoldProblem {
  PatchesProblem of;
};

/// Operands "x", "out".
MapOperation operation_of(const PatchesProblem& problem);
MapOperation operation_of(const FoldProblem& problem);

/// A window as a constant operand.
MapOperand window_operand(const kernels::Window& window);

}  // namespace tessera::ops
