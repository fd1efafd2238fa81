// Cost on a host of copying panels of the elements under a window.
#pragma once

#include <tessera/types.h>

#include <algorithm>

#include "kernels/common/cost.h"
#include "kernels/common/planes.h"
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

/// Cycles for copying the planes of `cols` columns.
inline double plane_cycles(const Planes& planes, double cols, const machine::HostFigures& f) {
  // A load, a mask and a store to planes that the L2 cache holds; with strides a few shuffles, and by pieces
  // of an image's row.
  constexpr double kVectorCycles = 5, kStridedCycles = 15, kPlaneCycles = 30;
  const Window& w = planes.seen().window;
  const double channels = planes.seen().channels, images = cols / w.out_positions();
  const double streamed = images * w.positions() * channels * sizeof(float);
  const double pieces = cols / planes.most_places();
  const double vectors = pieces * planes.count() * planes.step() / lanes_of(f);
  return streamed / streaming_rate(streamed, f) +
         vectors * (w.stride_across > 1 ? kStridedCycles : kVectorCycles) +
         pieces * planes.count() * kPlaneCycles;
}

/// Bytes of planes that the rows of X in a panel of `cols` columns take, which share most of them.
inline double plane_bytes(const Planes& planes, double cols) {
  return sizeof(float) * double{1} * planes.count() *
         std::min<double>(planes.step(), cols + planes.step() - planes.most_places());
}

}  // namespace tessera::kernels
