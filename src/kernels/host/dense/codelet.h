// Products of training with a dense weight in panels, for activations [batch, features]: one vertex is one
// core's slice.
//
// A panel is kPanelRows output features: element (16p + r, c) of W (m × k) is element (p, 16c + r) of a
// variable of ⌈m / 16⌉ rows. Rows beyond m are zeros. Vectors thus lie along output features, and the width
// of the batch costs no padding.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/common/codelet_list.h"
#include "kernels/common/window.h"

namespace tessera::kernels {

/// Y = activation(X·Wᵀ + bias), or for panel_forward_add, activation(Y + X·Wᵀ + bias): X n × k, W panels of m
/// rows, bias 1 × m or empty, Y n × m. All matrices are f32, f16 or bf16; sums are FP32, rounded once. With a
/// window (kernels/common/window.h), x has whole images, positions × channels, and X the elements under the
/// window from position first_row on, tap by tap all channels.
#define TESSERA_PANEL_FORWARD_FIELDS_OF(X, result) \
  X(x)                                             \
  X(w)                                             \
  X(bias, .optional = true)                        \
  X(window, .optional = true)                      \
  X(y, .access = program::Access::result)          \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_PANEL_FORWARD_FIELDS(X) TESSERA_PANEL_FORWARD_FIELDS_OF(X, out)
#define TESSERA_PANEL_FORWARD_ADD_FIELDS(X) TESSERA_PANEL_FORWARD_FIELDS_OF(X, inout)
#define TESSERA_PANEL_FORWARD_PARAMS(X) X(activation) X(first_row)

/// dX = dY·W: dY n × m, W panels of m rows and k columns, dX n × k. dX is 0 where `relu`, which has dX's
/// shape or is empty, is not positive: the gradient of the ReLU whose result `relu` is.
#define TESSERA_PANEL_INPUT_GRADIENT_FIELDS(X) \
  X(dy)                                        \
  X(w)                                         \
  X(relu, .optional = true)                    \
  X(dx, .access = program::Access::out)        \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

/// dW = dYᵀ·X in panels: dY n × m, X n × k. dW is written without being read, or panel_weight_gradient_add
/// adds to it.
#define TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS_OF(X, result) \
  X(dy)                                                    \
  X(x)                                                     \
  X(dw, .access = program::Access::result)                 \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS(X) TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS_OF(X, out)
#define TESSERA_PANEL_WEIGHT_GRADIENT_ADD_FIELDS(X) TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS_OF(X, inout)

#define TESSERA_DENSE_CODELETS(X)                                                                          \
  X(panel_forward, TESSERA_PANEL_FORWARD_FIELDS, TESSERA_PANEL_FORWARD_PARAMS, panel_forward_simd, 4096)   \
  X(panel_forward_add, TESSERA_PANEL_FORWARD_ADD_FIELDS, TESSERA_PANEL_FORWARD_PARAMS,                     \
    panel_forward_add_simd, 4096)                                                                          \
  X(panel_input_gradient, TESSERA_PANEL_INPUT_GRADIENT_FIELDS, TESSERA_NONE, panel_input_gradient_simd,    \
    4096)                                                                                                  \
  X(panel_weight_gradient, TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS, TESSERA_NONE, panel_weight_gradient_simd, \
    4096)                                                                                                  \
  X(panel_weight_gradient_add, TESSERA_PANEL_WEIGHT_GRADIENT_ADD_FIELDS, TESSERA_NONE,                     \
    panel_weight_gradient_add_simd, 4096)

TESSERA_POSITIONS(panel_forward_param, TESSERA_PANEL_FORWARD_PARAMS)
TESSERA_DECLARE_FAMILY(dense, TESSERA_DENSE_CODELETS)
TESSERA_DENSE_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// Number of output features of a panel.
inline constexpr uint32_t kPanelRows = 16;

/// Floats of scratch for slices of these sizes and types, for any instruction set; the second function is for
/// forward products with a window.
size_t panel_forward_scratch(uint32_t m, uint32_t k, uint32_t n, Type weights, Type values);
size_t panel_forward_scratch(uint32_t m, const Window& window, uint32_t channels, uint32_t n, Type weights,
                             Type values);
size_t panel_input_gradient_scratch(uint32_t m, uint32_t k, uint32_t n, Type weights, Type values);
size_t panel_weight_gradient_scratch(uint32_t m, uint32_t k, uint32_t n, Type weights, Type values);

}  // namespace tessera::kernels
