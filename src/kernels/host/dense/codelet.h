// Products of training with a dense weight in panels, for activations [batch, features]: one vertex is one
// core's slice.
//
// A panel is kPanelRows output features (sparse/panels/panel_layout.h). Vectors thus lie along output
// features, and the width of the batch costs no padding. Matrices of activations that are FP32 may have any
// strides, such as the strides of a matrix of features × batch.
//
// Each product is multiplied by alpha, and if it is added to the previous result, that by beta: the two
// numbers of `scalars`. Without scalars both are 1.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <cstdint>

#include "kernels/common/codelet_list.h"
#include "kernels/common/window.h"
#include "sparse/panels/panel_layout.h"

namespace tessera::kernels {

/// Y = activation(X·Wᵀ + bias), or for panel_forward_add, activation(Y + X·Wᵀ + bias): X n × k, W panels of m
/// rows, bias 1 × m or empty, Y n × m. All matrices are f32, f16 or bf16; sums are FP32, rounded once. With a
/// window (kernels/common/window.h), x has whole images, positions × channels, and X the elements under the
/// window from position first_row on, tap by tap all channels.
#define TESSERA_PANEL_FORWARD_FIELDS_OF(X, result) \
  X(x)                                             \
  X(w)                                             \
  X(bias, .optional = true)                        \
  X(scalars, .optional = true)                     \
  X(window, .optional = true)                      \
  X(y, .access = program::Access::result)          \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_PANEL_FORWARD_FIELDS(X) TESSERA_PANEL_FORWARD_FIELDS_OF(X, out)
#define TESSERA_PANEL_FORWARD_ADD_FIELDS(X) TESSERA_PANEL_FORWARD_FIELDS_OF(X, inout)
#define TESSERA_PANEL_FORWARD_PARAMS(X) X(activation) X(first_row)

/// dX = activation(dY·W + bias), or for panel_input_gradient_add, activation(dX + dY·W + bias): dY n × m, W
/// panels of m rows and k columns, bias 1 × k or empty, dX n × k. dX is 0 where `relu`, which has dX's shape
/// or is empty, is not positive: the gradient of the ReLU whose result `relu` is. With a window, dX has
/// images in FP32, positions × channels from first_channel on, and dY·W, tap by tap all channels, is added to
/// the elements under the window; there is no bias, no activation and no previous result. All vertices of the
/// product have this number of images.
#define TESSERA_PANEL_INPUT_GRADIENT_FIELDS_OF(X, result) \
  X(dy)                                                   \
  X(w)                                                    \
  X(relu, .optional = true)                               \
  X(bias, .optional = true)                               \
  X(scalars, .optional = true)                            \
  X(window, .optional = true)                             \
  X(dx, .access = program::Access::result)                \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_PANEL_INPUT_GRADIENT_FIELDS(X) TESSERA_PANEL_INPUT_GRADIENT_FIELDS_OF(X, out)
#define TESSERA_PANEL_INPUT_GRADIENT_ADD_FIELDS(X) TESSERA_PANEL_INPUT_GRADIENT_FIELDS_OF(X, inout)
#define TESSERA_PANEL_INPUT_GRADIENT_PARAMS(X) X(activation) X(first_channel) X(images)

/// dW = dYᵀ·X in panels: dY n × m, X n × k. dW is written without being read, or panel_weight_gradient_add
/// adds to it. With a window, x has whole images, and X of the elements under the window those from column
/// first_col on.
#define TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS_OF(X, result) \
  X(dy)                                                    \
  X(x)                                                     \
  X(scalars, .optional = true)                             \
  X(window, .optional = true)                              \
  X(dw, .access = program::Access::result)                 \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS(X) TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS_OF(X, out)
#define TESSERA_PANEL_WEIGHT_GRADIENT_ADD_FIELDS(X) TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS_OF(X, inout)
#define TESSERA_PANEL_WEIGHT_GRADIENT_PARAMS(X) X(first_col)

#define TESSERA_DENSE_CODELETS(X)                                                                           \
  X(panel_forward, TESSERA_PANEL_FORWARD_FIELDS, TESSERA_PANEL_FORWARD_PARAMS, panel_forward_simd, 4096)    \
  X(panel_forward_add, TESSERA_PANEL_FORWARD_ADD_FIELDS, TESSERA_PANEL_FORWARD_PARAMS,                      \
    panel_forward_add_simd, 4096)                                                                           \
  X(panel_input_gradient, TESSERA_PANEL_INPUT_GRADIENT_FIELDS, TESSERA_PANEL_INPUT_GRADIENT_PARAMS,         \
    panel_input_gradient_simd, 4096)                                                                        \
  X(panel_input_gradient_add, TESSERA_PANEL_INPUT_GRADIENT_ADD_FIELDS, TESSERA_PANEL_INPUT_GRADIENT_PARAMS, \
    panel_input_gradient_add_simd, 4096)                                                                    \
  X(panel_weight_gradient, TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS, TESSERA_PANEL_WEIGHT_GRADIENT_PARAMS,      \
    panel_weight_gradient_simd, 4096)                                                                       \
  X(panel_weight_gradient_add, TESSERA_PANEL_WEIGHT_GRADIENT_ADD_FIELDS,                                    \
    TESSERA_PANEL_WEIGHT_GRADIENT_PARAMS, panel_weight_gradient_add_simd, 4096)

TESSERA_POSITIONS(panel_forward_param, TESSERA_PANEL_FORWARD_PARAMS)
TESSERA_POSITIONS(panel_input_gradient_param, TESSERA_PANEL_INPUT_GRADIENT_PARAMS)
TESSERA_POSITIONS(panel_weight_gradient_param, TESSERA_PANEL_WEIGHT_GRADIENT_PARAMS)
TESSERA_DECLARE_FAMILY(dense, TESSERA_DENSE_CODELETS)
TESSERA_DENSE_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// Number of output features of a panel.
inline constexpr uint32_t kPanelRows = sparse::PanelLayout::kRows;

/// Floats of scratch for slices of these sizes and types, for any instruction set; the second function of two
/// is for products with a window, of which n counts positions, and `images` all images. Weight gradients need
/// more where X may have any strides.
size_t panel_forward_scratch(uint32_t m, uint32_t k, uint32_t n, Type weights, Type values);
size_t panel_forward_scratch(uint32_t m, const Window& window, uint32_t images, uint32_t channels, uint32_t n,
                             Type weights, Type values);
size_t panel_input_gradient_scratch(uint32_t m, uint32_t k, uint32_t n, Type weights, Type values);
size_t panel_input_gradient_scratch(uint32_t m, const Window& window, uint32_t images, uint32_t channels,
                                    uint32_t n, Type weights, Type values);
size_t panel_weight_gradient_scratch(uint32_t m, uint32_t k, uint32_t n, Type weights, Type values,
                                     bool any_strides = false);
size_t panel_weight_gradient_scratch(uint32_t m, uint32_t k, const Window& window, uint32_t images,
                                     uint32_t channels, uint32_t n, Type weights, Type values);

/// Whether a slice of this weight gradient takes all columns of dW.
bool takes_all_columns(const Window& window, uint32_t images, uint32_t channels, Type weights, Type values);

}  // namespace tessera::kernels
