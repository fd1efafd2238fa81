#include "sparse/convolution_adjoint.h"

#include <numeric>

#include "sparse/pattern.h"

namespace tessera::sparse {

bool has_adjoint(const Pattern& weight, uint32_t taps) {
  const uint32_t b = weight.block_size;
  return taps > 0 && weight.cols % taps == 0 && weight.cols / taps % b == 0 && weight.rows % b == 0 &&
         uint64_t{weight.rows} * taps <= kMaxDimension;
}

AdjointConvolution adjoint_of(const Pattern& weight, uint32_t taps) {
  const uint32_t b = weight.block_size, outputs = weight.rows / b, channels = weight.cols / taps / b;
  AdjointConvolution adjoint{{weight.cols / taps, weight.rows * taps, b, {}, {}}, {}};
  // Blocks go by channel, then by tap in reverse, then by output.
  std::vector<uint64_t> begin(uint64_t{channels} * taps + 1);
  const auto place = [&](uint32_t col) {
    return uint64_t{col % channels} * taps + (taps - 1 - col / channels);
  };
  for (const uint32_t col : weight.col_indices) ++begin[place(col) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  for (uint32_t c = 0; c <= channels; ++c) adjoint.pattern.crow_indices.push_back(begin[uint64_t{c} * taps]);
  adjoint.pattern.col_indices.resize(weight.blocks());
  adjoint.blocks.resize(weight.blocks());
  for (uint32_t row = 0; row < outputs; ++row)
    for (uint64_t i = weight.crow_indices[row]; i < weight.crow_indices[row + 1]; ++i) {
      const uint32_t col = weight.col_indices[i];
      const uint64_t to = begin[place(col)]++;
      adjoint.pattern.col_indices[to] = (taps - 1 - col / channels) * outputs + row;
      adjoint.blocks[to] = i;
    }
  return adjoint;
}

}  // namespace tessera::sparse
