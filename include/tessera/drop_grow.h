// Which blocks of a dynamic weight to drop, and where to grow new ones, as sparse training does every
// so many steps.
#pragma once

#include <tessera/types.h>
#include <tessera/weight.h>

#include <cstdint>
#include <vector>

namespace tessera {

/// The `count` stored blocks whose values have the smallest sum of absolute values; fewer where the
/// weight has fewer. FP32 weights.
std::vector<BlockPosition> weakest_blocks(const Weight& weight, uint64_t count);

/// `count` blocks that are not stored, uniformly chosen (SET; Mocanu et al., Nature Communications
/// 9, 2018); fewer where there are fewer. The choice is a function of the pattern, `seed` and `step`.
std::vector<BlockPosition> random_empty_blocks(const Weight& weight, uint64_t count, uint64_t seed,
                                               uint32_t step);

/// The `count` blocks, of those that are not stored, in which the gradient of the dense m × k matrix has
/// the largest sum of absolute values (RigL; Evci et al., ICML 2020); fewer where there are fewer.
std::vector<BlockPosition> strongest_empty_blocks(const Weight& weight, uint64_t count,
                                                  MatrixView<const float> dense_gradient);

}  // namespace tessera
