// Dropping and growing blocks of a dynamic weight, as sparse training does periodically.
#pragma once

#include <tessera/sparse.h>
#include <tessera/weight.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera {

/// The `count` stored blocks with the smallest sums of absolute values, or all if there are fewer. A weight
/// must be FP32.
std::vector<BlockPosition> weakest_blocks(const Weight& weight, uint64_t count);
std::vector<BlockPosition> weakest_blocks(const SparseMatrix& matrix, uint64_t count);

/// `count` blocks that are not stored, chosen uniformly (SET; Mocanu et al., Nature Communications 9, 2018),
/// or all if there are fewer. The choice is a function of the pattern, `seed`, `step` and `layer`.
std::vector<BlockPosition> random_empty_blocks(const Weight& weight, uint64_t count, uint64_t seed,
                                               uint32_t step);
std::vector<BlockPosition> random_empty_blocks(const Pattern& pattern, uint64_t count, uint64_t seed,
                                               uint32_t step, uint32_t layer = 0);

/// Among the blocks that are not stored, the `count` blocks in which the gradient of the dense m × k matrix
/// has the largest sums of absolute values (RigL; Evci et al., ICML 2020), or all if there are fewer.
std::vector<BlockPosition> strongest_empty_blocks(const Weight& weight, uint64_t count,
                                                  MatrixView<const float> dense_gradient);
std::vector<BlockPosition> strongest_empty_blocks(const Pattern& pattern, uint64_t count,
                                                  MatrixView<const float> dense_gradient);

/// The pattern without the blocks `drop` and with the blocks `grow`. Throws UsageError if a grown block is
/// already stored.
Pattern replaced(const Pattern& pattern, std::span<const BlockPosition> drop,
                 std::span<const BlockPosition> grow);

enum class DropGrowKind : uint8_t { none, set, rigl };

// "none", "set", "rigl"; drop_grow_named() throws UsageError, listing the names, for any other name.
std::string_view name_of(DropGrowKind kind);
DropGrowKind drop_grow_named(std::string_view name);

/// When dynamic layers drop blocks and grow the same number.
struct DropGrowSchedule {
  DropGrowKind kind = DropGrowKind::rigl;
  /// Fraction of the blocks that is replaced at the beginning; it decays to 0 along a cosine.
  double change = 0.3;
  uint32_t every = 100;  ///< number of steps between changes
  double until = 0.75;   ///< fraction of the steps after which patterns stay fixed

  /// The fraction to replace before a step, counted from 0.
  double fraction(uint64_t step, uint64_t steps) const;
};

}  // namespace tessera
