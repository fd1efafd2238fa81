#include "ops/sparse/host/adjoint.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "sparse/convolution_adjoint.h"

namespace tessera::ops {
namespace {

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

/// Both have their free slots, in which weights are 0, behind all others.
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

/// Along one dimension: an image's element X · stride + phase gets from result X + offset what a tap sees,
/// where phase = offset · stride + tap − before.
struct AdjointLine {
  uint32_t before = 0;  ///< zeros around the results
  uint32_t kernel = 1;
  std::vector<sparse::AdjointPlace> places;
};

std::optional<AdjointLine> adjoint_line(uint32_t kernel, uint32_t stride, uint32_t before,
                                        uint32_t dilation) {
  AdjointLine line;
  if (stride == 1) {
    const int64_t covered = int64_t{kernel - 1} * dilation;
    if (before > covered) return {};
    line.before = static_cast<uint32_t>(covered - before), line.kernel = kernel;
    for (uint32_t tap = 0; tap < kernel; ++tap) line.places.push_back({0, kernel - 1 - tap});
    return line;
  }
  if (dilation != 1) return {};
  std::vector<int64_t> offsets;
  for (int64_t tap = 0; tap < kernel; ++tap) {
    const int64_t step = stride, phase = ((tap - before) % step + step) % step;
    offsets.push_back((phase + before - tap) / step);
    line.places.push_back({static_cast<uint32_t>(phase), 0});
  }
  const auto [least, most] = std::ranges::minmax(offsets);
  const int64_t first = std::min<int64_t>(least, 0);
  for (uint32_t tap = 0; tap < kernel; ++tap)
    line.places[tap].tap = static_cast<uint32_t>(offsets[tap] - first);
  line.before = static_cast<uint32_t>(-first);
  line.kernel = static_cast<uint32_t>(std::max<int64_t>(most, 0) - first) + 1;
  return line;
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

std::optional<AdjointTaps> adjoint_taps(const kernels::Window& w) {
  const auto down = adjoint_line(w.kernel_height, w.stride_down, w.top, w.dilation_down);
  const auto across = adjoint_line(w.kernel_width, w.stride_across, w.left, w.dilation_across);
  if (!down || !across) return {};
  AdjointTaps adjoint{{.height = w.out_height,
                       .width = w.out_width,
                       .out_height = (w.height + w.stride_down - 1) / w.stride_down,
                       .out_width = (w.width + w.stride_across - 1) / w.stride_across,
                       .kernel_height = down->kernel,
                       .kernel_width = across->kernel,
                       .top = down->before,
                       .left = across->before,
                       .dilation_down = w.dilation_down,
                       .dilation_across = w.dilation_across},
                      {{}, w.stride_down * w.stride_across, down->kernel * across->kernel}};
  for (const sparse::AdjointPlace& row : down->places)
    for (const sparse::AdjointPlace& col : across->places)
      adjoint.places.of.push_back(
          {row.phase * w.stride_across + col.phase, row.tap * across->kernel + col.tap});
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
