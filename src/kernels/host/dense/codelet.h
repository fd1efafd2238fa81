// Products of training with a dense weight in panels, for activations [batch, features]: one vertex is one
// core's slice.
//
// A panel is kPanelRows output features: element (16p + r, c) of W (m × k) is element (p, 16c + r) of a
// variable of ⌈m / 16⌉ rows. Rows beyond m are zeros. Vectors thus lie along output features, and the width
// of the batch costs no padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_PANEL_FORWARD_FIELDS(X) \
  X(x)                                  \
  X(w)                                  \
  X(bias, .optional = true)             \
  X(y, .access = program::Access::out)  \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_PANEL_FORWARD_PARAMS(X) X(activation)

#define TESSERA_PANEL_INPUT_GRADIENT_FIELDS(X) \
  X(dy)                                        \
  X(w)                                         \
  X(relu, .optional = true)                    \
  X(dx, .access = program::Access::out)        \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

#define TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS(X) \
  X(dy)                                         \
  X(x)                                          \
  X(dw, .access = program::Access::inout)       \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

namespace panel_forward_field {
enum : size_t { TESSERA_PANEL_FORWARD_FIELDS(TESSERA_POSITION) count };
}
namespace panel_forward_param {
enum : size_t { TESSERA_PANEL_FORWARD_PARAMS(TESSERA_POSITION) count };
}
namespace panel_input_gradient_field {
enum : size_t { TESSERA_PANEL_INPUT_GRADIENT_FIELDS(TESSERA_POSITION) count };
}
namespace panel_weight_gradient_field {
enum : size_t { TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS(TESSERA_POSITION) count };
}

/// Output features of a panel.
inline constexpr uint32_t kPanelRows = 16;

/// Y = activation(X·Wᵀ + bias): X n × k, W panels of m rows, bias 1 × m or empty, Y n × m. All matrices are
/// f32, f16 or bf16; sums are FP32, rounded once.
extern const program::Codelet panel_forward_codelet;

/// dX = dY·W: dY n × m, W panels of m rows and k columns, dX n × k. Where `relu`, which has dX's shape or is
/// empty, is not positive, dX is 0: the gradient of the ReLU whose result it is.
extern const program::Codelet panel_input_gradient_codelet;

/// dW = dYᵀ·X in panels: dY n × m, X n × k. dW is written without being read.
extern const program::Codelet panel_weight_gradient_codelet;

/// The same, added to the previous dW.
extern const program::Codelet panel_weight_gradient_add_codelet;

/// Floats of scratch for slices of these sizes.
size_t panel_forward_scratch(uint32_t n, uint32_t k);
size_t panel_input_gradient_scratch(uint32_t n, uint32_t m);
size_t panel_weight_gradient_scratch(uint32_t n, uint32_t k, bool copies_x);

std::span<const ListedCodelet> dense_codelets();

}  // namespace tessera::kernels
