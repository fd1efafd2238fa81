#include "ops/sparse/host/adjoint.h"

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "sparse/convolution_adjoint.h"

namespace tessera::ops {
namespace {

using sparse::PackedBlocks;
using sparse::PackedElements;

/// Places of the values of `adjoint` in those of a weight, by its block of which each is the transpose.
std::vector<uint32_t> places_in(const PackedElements& weight, const PackedElements& adjoint,
                                const std::vector<uint64_t>& blocks) {
  const std::vector<uint64_t> from = weight.permutation(), to = adjoint.permutation();
  std::vector<uint32_t> places(adjoint.places(), static_cast<uint32_t>(weight.zero_place()));
  for (size_t i = 0; i < to.size(); ++i) places[to[i]] = static_cast<uint32_t>(from[blocks[i]]);
  return places;
}

std::vector<uint32_t> places_in(const PackedBlocks& weight, const PackedBlocks& adjoint,
                                const std::vector<uint64_t>& blocks) {
  const sparse::BlockOrder& order = weight.order();
  const uint64_t values = order.block_values();
  std::vector<uint32_t> places(blocks.size() * values);
  for (uint64_t i = 0; i < blocks.size(); ++i) {
    const uint64_t from = weight.index().slot(blocks[i]) * values, to = adjoint.index().slot(i) * values;
    for (uint32_t r = 0; r < order.block_size; ++r)
      for (uint32_t c = 0; c < order.block_size; ++c)
        places[to + order.offset(r, c)] = static_cast<uint32_t>(from + order.offset(c, r));
  }
  return places;
}

}  // namespace

bool has_adjoint(const PackedWeight& weight, uint32_t taps) {
  const uint64_t values = packed_shape(weight).elements();
  return !weight.is_dense() && !weight.is_dynamic() && values > 0 && values <= UINT32_MAX &&
         sparse::has_adjoint(weight.pattern(), taps);
}

AdjointWeight adjoint_of(const PackedWeight& weight, uint32_t taps) {
  const sparse::AdjointConvolution adjoint = sparse::adjoint_of(weight.pattern(), taps);
  AdjointWeight result{prepack_index(adjoint.pattern, weight.type(), {}), {}};
  if (const auto* blocks = std::get_if<PackedBlocks>(&weight.form))
    result.source = places_in(*blocks, std::get<PackedBlocks>(result.weight.form), adjoint.blocks);
  else
    result.source = places_in(std::get<PackedElements>(weight.form),
                              std::get<PackedElements>(result.weight.form), adjoint.blocks);
  return result;
}

Operand gather_adjoint(const Builder& builder, WeightIndex& index, const AdjointWeight& adjoint,
                       const Operand& values, std::vector<program::StepId>& steps) {
  const PackedShape shape = packed_shape(adjoint.weight);
  const Operand places = builder.whole(
      index.array(builder, "source", Type::u32, adjoint.source.data(), shape.rows, shape.cols, false));
  const Operand gathered = builder.temporary("gathered", adjoint.weight.type(), shape.rows, shape.cols, {},
                                             program::Purpose::parameter);
  steps.push_back(add_gather(builder, values, places, gathered, builder.machine().tiles));
  return gathered;
}

}  // namespace tessera::ops
