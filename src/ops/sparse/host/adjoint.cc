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

void find_source(const PackedWeight& weight, const std::vector<uint64_t>& blocks, AdjointWeight& adjoint) {
  const PackedWeight& own = adjoint.weight;
  if (const auto* of = std::get_if<PackedBlocks>(&weight.form))
    find_source(*of, std::get<PackedBlocks>(own.form), blocks, adjoint.source);
  else
    find_source(std::get<PackedElements>(weight.form), std::get<PackedElements>(own.form), blocks,
                adjoint.source);
}

}  // namespace

bool has_adjoint(const PackedWeight& weight, uint32_t taps) {
  const uint64_t values = packed_shape(weight).elements();
  return !weight.is_dense() && values > 0 && values <= UINT32_MAX &&
         sparse::has_adjoint(weight.pattern(), taps);
}

AdjointWeight adjoint_of(const PackedWeight& weight, uint32_t taps) {
  const sparse::AdjointConvolution adjoint = sparse::adjoint_of(weight.pattern(), taps);
  AdjointWeight result{prepack_index(adjoint.pattern, weight.type(), weight.capacity()), {}};
  result.source.resize(packed_shape(result.weight).elements());
  find_source(weight, adjoint.blocks, result);
  return result;
}

void follow_pattern(AdjointWeight& adjoint, const PackedWeight& weight, uint32_t taps) {
  const sparse::AdjointConvolution changed = sparse::adjoint_of(weight.pattern(), taps);
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
