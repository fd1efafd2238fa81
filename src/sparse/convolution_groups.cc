#include "sparse/convolution_groups.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "sparse/pattern.h"

namespace tessera::sparse {

bool fits_groups(uint32_t outputs, uint32_t cols, uint32_t block_size, const ConvolutionGroups& of) {
  if (of.groups == 0 || of.taps == 0 || outputs % of.groups != 0 || cols % of.taps != 0) return false;
  return outputs / of.groups % block_size == 0 && cols / of.taps % block_size == 0;
}

Pattern ungrouped(const Pattern& weight, const ConvolutionGroups& of) {
  const uint32_t b = weight.block_size;
  const uint64_t cols = uint64_t{weight.cols} * of.groups;
  if (!fits_groups(weight.rows, weight.cols, b, of) || cols > kMaxDimension)
    throw UsageError(fmt::format("a weight of {} × {} in blocks of {} has no {} groups of {} taps",
                                 weight.rows, weight.cols, b, of.groups, of.taps));
  Pattern whole = weight;
  whole.cols = static_cast<uint32_t>(cols);
  const uint32_t channels = weight.cols / of.taps / b, outputs = weight.rows / of.groups / b;
  for (uint32_t row = 0; row < weight.block_rows(); ++row)
    for (uint64_t i = weight.crow_indices[row]; i < weight.crow_indices[row + 1]; ++i) {
      uint32_t& col = whole.col_indices[i];
      col = (col / channels * of.groups + row / outputs) * channels + col % channels;
    }
  return whole;
}

bool is_in_groups(const Pattern& whole, const ConvolutionGroups& of) {
  const bool divides = of.groups > 0 && of.taps > 0 && whole.rows % of.groups == 0 &&
                       whole.cols % of.taps == 0 && whole.cols / of.taps % of.groups == 0;
  if (!divides) return false;
  const uint32_t b = whole.block_size;
  const uint32_t channels = whole.cols / of.taps / of.groups, outputs = whole.rows / of.groups;
  for (uint32_t row = 0; row < whole.block_rows(); ++row) {
    const uint64_t begin = whole.crow_indices[row], end = whole.crow_indices[row + 1];
    if (begin == end) continue;
    const uint32_t top = row * b, bottom = std::min(top + b, whole.rows) - 1, group = top / outputs;
    if (bottom / outputs != group) return false;
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t left = whole.col_indices[i] * b, right = std::min(left + b, whole.cols) - 1;
      if (left / channels != right / channels || left / channels % of.groups != group) return false;
    }
  }
  return true;
}

}  // namespace tessera::sparse
