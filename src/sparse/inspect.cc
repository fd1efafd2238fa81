#include "sparse/inspect.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include "sparse/pattern.h"

namespace tessera::sparse {
namespace {

BlockCovering describe(const Pattern& covering, uint64_t non_zeros) {
  const auto stored = static_cast<double>(stored_elements(covering));
  return {.block_size = covering.block_size,
          .blocks = covering.blocks(),
          .density = density(covering),
          .fill_in = non_zeros == 0 ? 1 : stored / static_cast<double>(non_zeros)};
}

}  // namespace

Inspection inspect(const Pattern& pattern) {
  if (pattern.block_size != 1) {
    throw UsageError(fmt::format("inspecting a pattern of block size {}; it must be 1", pattern.block_size));
  }
  Inspection result;
  result.rows = pattern.rows;
  result.cols = pattern.cols;
  result.non_zeros = stored_elements(pattern);
  result.density = density(pattern);
  result.coverings.push_back(describe(pattern, result.non_zeros));
  // Each size divides the next, so covering the previous covering gives the same result, faster.
  Pattern covering = cover(pattern, 4);
  result.coverings.push_back(describe(covering, result.non_zeros));
  for (uint32_t block_size : {8U, 16U, 32U}) {
    covering = cover(covering, block_size);
    result.coverings.push_back(describe(covering, result.non_zeros));
  }
  return result;
}

}  // namespace tessera::sparse
