#include "ops/sparse/host/adjoint.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <variant>
#include <vector>

#include "sparse/convolution_adjoint.h"

namespace tessera::ops {
namespace {

using kernels::WindowAxis;
using sparse::PackedBlocks;
using sparse::PackedElements;

/// Sets the places of the values of `adjoint` in those of a weight, by its block of which each is the
/// transpose.
void find_source(const PackedElements& weight, const PackedElements& adjoint,
                 const std::vector<uint64_t>& blocks, std::span<uint32_t> source) {
  const std::vector<uint64_t> from = weight.permutation(), to = adjoint.permutation();
  std::ranges::fill(source, static_cast<uint32_t>(weight.zero_place()));
  for (size_t i = 0; i < to.size(); ++i) source[to[i]] = static_cast<uint32_t>(from[blocks[i]]);
}

/// In both, free slots, whose weights are 0, come last.
void find_source(const PackedBlocks& weight, const PackedBlocks& adjoint, const std::vector<uint64_t>& blocks,
                 std::span<uint32_t> source) {
  const sparse::BlockOrder& order = weight.order();
  const uint64_t values = order.block_values();
  std::iota(source.begin(), source.end(), 0U);
  for (uint64_t i = 0; i < blocks.size(); ++i) {
    const uint64_t from = weight.index().slot(blocks[i]) * values, to = adjoint.index().slot(i) * values;
    for (uint32_t r = 0; r < order.block_size; ++r)
      for (uint32_t c = 0; c < order.block_size; ++c)
        source[to + order.offset(r, c)] = static_cast<uint32_t>(from + order.offset(c, r));
  }
}

/// The adjoint of a window along one dimension.
struct AdjointAxis {
  WindowAxis window;
  WindowAxis fold;
  std::vector<sparse::AdjointPlace> places;
};

/// Position X has the elements X · stride + phase of the images. They get the contribution of a tap at result
/// X + offset, where phase = offset · stride + tap · dilation − before.
AdjointAxis axis_of_phases(const WindowAxis& w) {
  const auto number = [](int64_t i) { return static_cast<uint32_t>(i); };
  const int64_t step = w.stride;
  AdjointAxis axis;
  std::vector<int64_t> offsets;
  for (int64_t tap = 0; tap < w.kernel; ++tap) {
    const int64_t at = tap * w.dilation - w.before, phase = (at % step + step) % step;
    offsets.push_back((phase - at) / step);
    axis.places.push_back({number(phase), 0});
  }
  const auto [least, most] = std::ranges::minmax(offsets);  // at most 0, and at least 0
  for (size_t tap = 0; tap < offsets.size(); ++tap)
    axis.places[tap].tap = number((offsets[tap] - least) / w.dilation);
  const uint32_t positions = (w.size + w.stride - 1) / w.stride;
  axis.window = {.size = w.out,
                 .out = positions,
                 .kernel = number((most - least) / w.dilation) + 1,
                 .before = number(-least),
                 .dilation = w.dilation};
  axis.fold = {.size = w.size, .out = positions, .kernel = w.stride, .stride = w.stride};
  return axis;
}

/// Each tap is a phase of its own; the positions are those of the results.
AdjointAxis axis_of_taps(const WindowAxis& w) {
  AdjointAxis axis{{.size = w.out, .out = w.out}, w, {}};
  for (uint32_t tap = 0; tap < w.kernel; ++tap) axis.places.push_back({tap, 0});
  return axis;
}

/// Phases without taps would cost time and memory, and phases with one tap have nothing to add up.
AdjointAxis adjoint_axis(const WindowAxis& w) {
  const int64_t covered = int64_t{w.kernel - 1} * w.dilation;
  const bool has_phases = w.stride == 1 || (w.stride < w.kernel && w.dilation == 1);
  return has_phases && w.before <= covered ? axis_of_phases(w) : axis_of_taps(w);
}

void find_source(const PackedWeight& weight, const std::vector<uint64_t>& blocks, AdjointWeight& adjoint) {
  const PackedWeight& own = adjoint.weight;
  if (const auto* of = std::get_if<PackedBlocks>(&weight.form))
    find_source(*of, std::get<PackedBlocks>(own.form), blocks, adjoint.source);
  else
    find_source(std::get<PackedElements>(weight.form), std::get<PackedElements>(own.form), blocks,
                adjoint.source);
}

}  // namespace

AdjointTaps adjoint_taps(const kernels::Window& w) {
  const AdjointAxis down = adjoint_axis(w.down()), across = adjoint_axis(w.across());
  AdjointTaps adjoint{
      kernels::Window::of(down.window, across.window), kernels::Window::of(down.fold, across.fold), {}};
  adjoint.places.phases = adjoint.fold.taps();
  adjoint.places.taps = adjoint.window.taps();
  for (const sparse::AdjointPlace& row : down.places)
    for (const sparse::AdjointPlace& col : across.places)
      adjoint.places.of.push_back(
          {row.phase * across.fold.kernel + col.phase, row.tap * across.window.kernel + col.tap});
  return adjoint;
}

bool has_adjoint(const PackedWeight& weight, const sparse::AdjointPlaces& places) {
  const uint64_t values = packed_shape(weight).elements();
  return !weight.is_dense() && values > 0 && values <= UINT32_MAX &&
         sparse::has_adjoint(weight.pattern(), places);
}

AdjointWeight adjoint_of(const PackedWeight& weight, const sparse::AdjointPlaces& places) {
  const sparse::AdjointConvolution adjoint = sparse::adjoint_of(weight.pattern(), places);
  AdjointWeight result{prepack_index(adjoint.pattern, weight.type(), weight.capacity()), {}};
  result.source.resize(packed_shape(result.weight).elements());
  find_source(weight, adjoint.blocks, result);
  return result;
}

void follow_pattern(AdjointWeight& adjoint, const PackedWeight& weight, const sparse::AdjointPlaces& places) {
  const sparse::AdjointConvolution changed = sparse::adjoint_of(weight.pattern(), places);
  set_pattern(adjoint.weight, changed.pattern);
  find_source(weight, changed.blocks, adjoint);
}

Operand gather_adjoint(const Builder& builder, WeightIndex& index, const AdjointWeight& adjoint,
                       const Operand& values, std::vector<program::StepId>& steps) {
  const PackedShape shape = packed_shape(adjoint.weight);
  const Operand places = builder.whole(index.array(builder, "source", Type::u32, adjoint.source.data(),
                                                   shape.rows, shape.cols, adjoint.weight.is_dynamic()));
  const Operand gathered = builder.temporary("gathered", adjoint.weight.type(), shape.rows, shape.cols, {},
                                             program::Purpose::parameter);
  steps.push_back(add_gather(builder, values, places, gathered, builder.machine().tiles));
  return gathered;
}

}  // namespace tessera::ops
