#include "kernels/map/patches/codelet.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"

namespace tessera::kernels {

using program::Phase;
using program::Vertex;

PatchesVertex::PatchesVertex(const Vertex& v)
    : window(window_of(v.fields[patches_field::window])),
      channels(static_cast<uint32_t>(v.params[patches_param::channels])),
      x(v.fields[patches_field::x]),
      out(v.fields[patches_field::out]),
      position(static_cast<uint32_t>(v.params[patches_param::row])),
      feature(static_cast<uint32_t>(v.params[patches_param::col])) {
  if (v.params[patches_param::features_in_rows] == 0) return;
  x = transposed(x);
  out = transposed(out);
  std::swap(position, feature);
}

namespace {

/// A position in images of equal size.
struct ImagePosition {
  uint32_t image, row, col;

  ImagePosition(uint32_t position, uint32_t height, uint32_t width)
      : image(position / (height * width)), row(position / width % height), col(position % width) {}
};

double patch_at(const PatchesVertex& p, uint32_t position, uint32_t feature) {
  const Window& w = p.window;
  const ImagePosition at(position, w.out_height, w.out_width);
  const uint32_t tap = feature / p.channels;
  const int64_t row = w.row(at.row, tap / w.kernel_width), col = w.col(at.col, tap % w.kernel_width);
  if (!w.has_row(row) || !w.has_col(col)) return 0;
  return number_at(p.x, (int64_t{at.image} * w.height + row) * w.width + col, feature % p.channels);
}

float sum_at(const PatchesVertex& p, uint32_t position, uint32_t channel) {
  const Window& w = p.window;
  const ImagePosition at(position, w.height, w.width);
  float sum = 0;
  for (uint32_t tap = 0; tap < w.taps(); ++tap) {
    const int64_t row = w.out_row(at.row, tap / w.kernel_width),
                  col = w.out_col(at.col, tap % w.kernel_width);
    if (row < 0 || col < 0) continue;
    sum += f32_at(p.x, (int64_t{at.image} * w.out_height + row) * w.out_width + col,
                  int64_t{tap} * p.channels + channel);
  }
  return sum;
}

template <class At>
void each_element(const Vertex& v, const At& at) {
  if (v.fields[patches_field::out].empty()) return;
  const PatchesVertex p(v);
  for (uint32_t i = 0; i < p.out.rows; ++i)
    for (uint32_t c = 0; c < p.out.cols; ++c) set_number(p.out, i, c, at(p, p.position + i, p.feature + c));
}

// Cycles of a contiguous piece: of a copy, its call; of a sum, its loop.
constexpr double kPieceCycles = 8;
// Vector operations for each element that is not contiguous.
constexpr double kStridedOperations = 16;

/// Cost of moving elements in pieces along channels, or along rows of positions, which a step makes strided.
program::PhaseTimes moving_cost(const PatchesVertex& p, double elements, double operations,
                                const machine::Machine& m) {
  const bool along_channels = p.x.col_stride == 1 && p.out.col_stride == 1;
  const bool along_rows = p.x.row_stride == 1 && p.out.row_stride == 1;
  const double piece = along_channels ? p.channels : along_rows ? p.window.out_width : 1;
  if (!along_channels && p.window.stride_across > 1) operations += kStridedOperations;
  const double bytes = elements * static_cast<double>(size_of(p.out.type));
  return in_phase(Phase::rearrange, host_cycles(m, {bytes, bytes, operations * elements}) +
                                        kPieceCycles * elements / std::max(piece, 1.0));
}

}  // namespace

void patches_reference(const Vertex& v) { each_element(v, patch_at); }
void fold_reference(const Vertex& v) { each_element(v, sum_at); }

program::PhaseTimes patches_cost(const Vertex& v, const machine::Machine& m) {
  const PatchesVertex p(v);
  return moving_cost(p, static_cast<double>(p.out.elements()), 0, m);
}

program::PhaseTimes fold_cost(const Vertex& v, const machine::Machine& m) {
  const PatchesVertex p(v);
  const Window& w = p.window;
  const double seen = std::ceil(static_cast<double>(w.kernel_height) / w.stride_down) *
                      std::ceil(static_cast<double>(w.kernel_width) / w.stride_across);
  return moving_cost(p, static_cast<double>(p.out.elements()) * seen,
                     1 + widen_operations(p.x.type) + round_operations(p.out.type), m);
}

TESSERA_DEFINE_FAMILY(patches, TESSERA_PATCHES_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
