// Weights of convolutions in groups: [outputs, taps · channels of a group], tap by tap all channels; or whole
// weights, [outputs, taps · channels], which are zero outside of each output's group.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>

namespace tessera::sparse {

/// Whether aligned blocks of a weight lie within one group and tap each.
bool fits_groups(uint32_t outputs, uint32_t cols, uint32_t block_size, const ConvolutionGroups& of);

/// The pattern of the whole weight, whose blocks have the same order. Throws UsageError unless
/// fits_groups().
Pattern ungrouped(const Pattern& weight, const ConvolutionGroups& of);

/// Whether each block of a whole weight is of one group and tap.
bool is_in_groups(const Pattern& whole, const ConvolutionGroups& of);

}  // namespace tessera::sparse
