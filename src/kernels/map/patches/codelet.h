// The elements under a window over images, and the adjoint.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/common/window.h"

namespace tessera::kernels {

/// "x" has images: rows are positions, columns channels, or the reverse if "features_in_rows". For each
/// position of the window (kernels/common/window.h), the result has the elements under its taps, tap by tap
/// all channels, with zeros beyond the images. "out" is the box of the result that begins at row, col. Any
/// floating-point type.
#define TESSERA_PATCHES_FIELDS(X) \
  X(x)                            \
  X(window)                       \
  X(out, .access = program::Access::out)

/// The adjoint of patches: each element of "out", a box of images, is the sum of the patch elements taken
/// from its position, from the first tap to the last, in FP32, rounded once. "x" has the channels of all taps
/// for each position of the window; the images have "channels" channels.
#define TESSERA_FOLD_FIELDS(X) TESSERA_PATCHES_FIELDS(X)
#define TESSERA_PATCHES_PARAMS(X) X(channels) X(features_in_rows) X(row) X(col)

#define TESSERA_PATCHES_CODELETS(X)                                             \
  X(patches, TESSERA_PATCHES_FIELDS, TESSERA_PATCHES_PARAMS, patches_simd, 512, \
    .runs_on = program::RunsOn::hosts)                                          \
  X(fold, TESSERA_FOLD_FIELDS, TESSERA_PATCHES_PARAMS, fold_simd, 512, .runs_on = program::RunsOn::hosts)
TESSERA_DECLARE_FAMILY(patches, TESSERA_PATCHES_CODELETS)
TESSERA_POSITIONS(patches_param, TESSERA_PATCHES_PARAMS)
TESSERA_PATCHES_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// A vertex, with fields as positions × features in either orientation.
struct PatchesVertex {
  Window window;
  uint32_t channels = 0;
  program::FieldView x;    ///< positions × features
  program::FieldView out;  ///< positions × features
  uint32_t position = 0;   ///< first position of `out`
  uint32_t feature = 0;

  explicit PatchesVertex(const program::Vertex& v);
};

}  // namespace tessera::kernels
