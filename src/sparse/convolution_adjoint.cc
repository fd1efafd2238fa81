#include "sparse/convolution_adjoint.h"

#include <numeric>

#include "sparse/pattern.h"

namespace tessera::sparse {

bool has_adjoint(const Pattern& weight, const AdjointPlaces& places) {
  const uint32_t b = weight.block_size;
  const uint64_t taps = places.of.size();
  return taps > 0 && weight.cols % taps == 0 && weight.cols / taps % b == 0 && weight.rows % b == 0 &&
         uint64_t{weight.rows} * places.taps <= kMaxDimension &&
         weight.cols / taps * places.phases <= kMaxDimension;
}

AdjointConvolution adjoint_of(const Pattern& weight, const AdjointPlaces& places) {
  const auto own_taps = static_cast<uint32_t>(places.of.size());
  const uint32_t b = weight.block_size, outputs = weight.rows / b, channels = weight.cols / own_taps / b;
  const uint32_t rows = places.phases * channels;
  AdjointConvolution adjoint{{rows * b, weight.rows * places.taps, b, {}, {}}, {}};
  // Blocks go by phase and channel, then by tap, then by output.
  std::vector<uint64_t> begin(uint64_t{rows} * places.taps + 1);
  const auto place_of = [&](uint32_t col) {
    const AdjointPlace& place = places.of[col / channels];
    return (uint64_t{place.phase} * channels + col % channels) * places.taps + place.tap;
  };
  for (const uint32_t col : weight.col_indices) ++begin[place_of(col) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  for (uint32_t row = 0; row <= rows; ++row)
    adjoint.pattern.crow_indices.push_back(begin[uint64_t{row} * places.taps]);
  adjoint.pattern.col_indices.resize(weight.blocks());
  adjoint.blocks.resize(weight.blocks());
  for (uint32_t row = 0; row < outputs; ++row)
    for (uint64_t i = weight.crow_indices[row]; i < weight.crow_indices[row + 1]; ++i) {
      const uint32_t col = weight.col_indices[i];
      const uint64_t to = begin[place_of(col)]++;
      adjoint.pattern.col_indices[to] = places.of[col / channels].tap * outputs + row;
      adjoint.blocks[to] = i;
    }
  return adjoint;
}

}  // namespace tessera::sparse
