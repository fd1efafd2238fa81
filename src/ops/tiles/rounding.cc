#include "ops/tiles/rounding.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kernels/tile/rounded_product/codelet.h"

namespace tessera::ops {

void round_partials(const TiledNumbers& numbers, program::ComputeSet& set) {
  if (!numbers.rounding || numbers.partials == Type::f32) return;
  for (program::VertexGroup& group : set.groups) {
    const program::Codelet* const rounded = kernels::rounded_form(*group.codelet);
    if (rounded == nullptr) continue;
    group.codelet = rounded;
    std::vector<int64_t> seeds;
    for (uint32_t i = 0; i < group.count(); ++i)
      seeds.push_back(
          static_cast<int64_t>(base::seed_of_substream(*numbers.rounding, 0, group.tile_of(i) + 1)));
    group.params.emplace_back(std::move(seeds));
  }
}

}  // namespace tessera::ops
