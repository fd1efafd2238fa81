// What a window over images sees, and the reverse.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/common/window.h"

namespace tessera::kernels {

/// "x" has images: rows are positions, columns channels, or the reverse if "features_in_rows". For each
/// position of the window (kernels/common/window.h) "out" has what its taps see, tap by tap all channels, and
/// zeros beyond the images. "out" is the box of it that begins at row, col. Of any floating-point type.
#define TESSERA_PATCHES_FIELDS(X) \
  X(x)                            \
  X(window)                       \
  X(out, .access = program::Access::out)

/// The transpose: each element of "out", a box of images, is the sum of those that it is seen in, from the
/// first tap to the last, in FP32, rounded once. "x" has the channels of all taps for each position of the
/// window, "out" so many channels as "channels" says.
#define TESSERA_FOLD_FIELDS(X) TESSERA_PATCHES_FIELDS(X)
#define TESSERA_PATCHES_PARAMS(X) X(channels) X(features_in_rows) X(row) X(col)

#define TESSERA_PATCHES_CODELETS(X)                                             \
  X(patches, TESSERA_PATCHES_FIELDS, TESSERA_PATCHES_PARAMS, patches_simd, 512, \
    .runs_on = program::RunsOn::hosts)                                          \
  X(fold, TESSERA_FOLD_FIELDS, TESSERA_PATCHES_PARAMS, fold_simd, 512, .runs_on = program::RunsOn::hosts)
TESSERA_DECLARE_FAMILY(patches, TESSERA_PATCHES_CODELETS)
TESSERA_POSITIONS(patches_param, TESSERA_PATCHES_PARAMS)
TESSERA_PATCHES_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// A vertex of these: positions and features whatever lies in rows.
struct PatchesVertex {
  Window window;
  uint32_t channels = 0;
  program::FieldView x;    ///< positions × features
  program::FieldView out;  ///< the same
  uint32_t position = 0;   ///< the first of `out`
  uint32_t feature = 0;

  explicit PatchesVertex(const program::Vertex& v);
};

}  // namespace tessera::kernels
