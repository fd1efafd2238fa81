// Cost on a host of copying panels of the elements under a window.
#pragma once

#include <tessera/types.h>

#include "kernels/common/cost.h"
#include "kernels/common/window.h"

namespace tessera::kernels {

/// Cycles for copying all rows of X in `cols` columns. Images stream in once, and are then read from the L1
/// and L2 caches, once per tap.
inline double gather_cycles(const Seen& seen, const MatrixView<const float>& images, double cols,
                            const machine::HostFigures& f) {
  // A load, a mask and a store per vector, to a panel that the L1 cache does not hold; per piece of an
  // image's row, a call and an overlapping vector; and elements that are not neighbours.
  constexpr double kVectorCycles = 6, kPieceCycles = 6, kElementCycles = 1.2;
  const Window& w = seen.window;
  const double rows = seen.rows();
  const double image_bytes = cols / w.out_positions() * w.positions() * seen.channels * sizeof(float);
  const double streamed = image_bytes / streaming_rate(image_bytes, f);
  const bool keeps_size = w.stride_across == 1 && w.stride_down == 1 && w.out_width == w.width;
  if (images.col_stride * w.stride_across > 2) return streamed + kElementCycles * rows * cols;
  const double pieces = keeps_size ? 0 : cols / w.out_width;
  const double vectors = cols / lanes_of(f) * (w.stride_across > 1 ? 3 : 1);
  return streamed + rows * (kVectorCycles * vectors + kPieceCycles * pieces);
}

}  // namespace tessera::kernels
