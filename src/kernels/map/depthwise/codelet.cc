#include "kernels/map/depthwise/codelet.h"

#include <algorithm>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"

namespace tessera::kernels {

using program::Phase;
using program::Vertex;

DepthwiseVertex::DepthwiseVertex(const Vertex& v)
    : window(window_of(v.fields[depthwise_field::window])),
      x(v.fields[depthwise_field::x]),
      w(v.fields[depthwise_field::w]),
      bias(v.fields[depthwise_field::bias]),
      out(v.fields[depthwise_field::out]),
      low(float_of(v.params[depthwise_param::low])),
      high(float_of(v.params[depthwise_param::high])),
      position(static_cast<uint32_t>(v.params[depthwise_param::row])),
      channel(static_cast<uint32_t>(v.params[depthwise_param::col])) {
  if (v.params[depthwise_param::features_in_rows] == 0) return;
  x = transposed(x);
  out = transposed(out);
  std::swap(position, channel);
}

float DepthwiseVertex::weight_at(uint32_t of_channel, uint32_t tap) const {
  return f32_at(w, of_channel, tap);
}

float DepthwiseVertex::bias_at(uint32_t of_channel) const {
  return bias.empty() ? 0 : f32_at(bias, 0, of_channel);
}

void depthwise_reference(const Vertex& v) {
  if (v.fields[depthwise_field::out].empty()) return;
  const DepthwiseVertex d(v);
  const Window& w = d.window;
  for (uint32_t i = 0; i < d.out.rows; ++i)
    for (uint32_t c = 0; c < d.out.cols; ++c) {
      const uint32_t position = d.position + i;
      float sum = d.bias_at(d.channel + c);
      for (uint32_t tap = 0; tap < w.taps(); ++tap) {
        const int64_t row = w.row(position / w.out_width % w.out_height, tap / w.kernel_width);
        const int64_t col = w.col(position % w.out_width, tap % w.kernel_width);
        if (!w.has_row(row) || !w.has_col(col)) continue;
        const int64_t place = (int64_t{position / w.out_positions()} * w.height + row) * w.width + col;
        sum += d.weight_at(d.channel + c, tap) * f32_at(d.x, place, d.channel + c);
      }
      if (sum < d.low) sum = d.low;
      if (sum > d.high) sum = d.high;
      set_number(d.out, i, c, sum);
    }
}

program::PhaseTimes depthwise_cost(const Vertex& v, const machine::Machine& m) {
  // For each tap of a vector: two loads, of which one is the weight or a mask, and a multiply-add; along rows
  // of images these are copied first. Finding what a position's taps see; starting a channel, and a row of
  // it.
  constexpr double kTapOperations = 2, kCopyOperations = 1.5, kPositionCycles = 12, kChannelCycles = 60;
  constexpr double kRowCycles = 20, kShiftedRowCycles = 8, kMaskCycles = 6;
  const DepthwiseVertex d(v);
  const Window& w = d.window;
  const double results = static_cast<double>(d.out.elements());
  const double images = static_cast<double>(d.out.rows) / w.out_positions();
  const double seen = images * w.positions() * d.out.cols;
  const bool along_channels = d.x.col_stride == 1, shifted = !along_channels && sees_by_shifts(w);
  const bool copies = !along_channels && !(shifted && w.keeps_size() && d.x.type == Type::f32);
  // A row is computed in whole vectors.
  const double vector = lanes_of(m.figures);
  const double padded = along_channels || shifted ? 1 : std::max(1.0, vector / std::max(1U, w.out_width));
  double operations = results * padded * (kTapOperations * w.taps() + round_operations(d.out.type));
  operations += results * w.taps() * (copies ? 0 : widen_operations(d.x.type));
  if (copies)
    operations += seen * (kCopyOperations * (w.stride_across > 1 ? 3 : 1) + widen_operations(d.x.type));
  const double bytes = static_cast<double>(size_of(d.out.type));
  double cycles = kPositionCycles * d.out.rows;
  if (shifted)
    cycles = d.out.cols * (kChannelCycles + (copies ? kShiftedRowCycles * images * w.height : 0)) +
             kMaskCycles * w.taps() * w.out_height;
  else if (!along_channels)
    cycles = d.out.cols * (kChannelCycles + kRowCycles * images * (w.height + w.out_height));
  return in_phase(Phase::compute, host_cycles(m, {seen * bytes, results * bytes, operations}) + cycles);
}

TESSERA_DEFINE_FAMILY(depthwise, TESSERA_DEPTHWISE_CODELETS, TESSERA_HOST_CODELET)

}  // namespace tessera::kernels
