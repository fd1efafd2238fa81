// Better packings by repacking a part.
#pragma once

#include <tessera/packing.h>

#include <functional>
#include <span>
#include <vector>

namespace tessera::pack {

/// What improve() needs to know.
struct ImproveOptions {
  uint32_t max_per_pack = 0;
  uint64_t target = 0;            ///< packs that are as good as any
  std::span<const double> duals;  ///< of the relaxation, by length
  uint64_t seed = 0;
  uint32_t rounds = 0;   ///< to try at most
  double most_work = 0;  ///< of ColumnGeneration::work()
};

/// Takes out packs that fall short of the duals' promise and some others at random, packs their
/// sequences anew, and keeps the result where it has no more packs (large neighbourhood search).
void improve(std::vector<Strategy>& packs, uint32_t max_length, const ImproveOptions& options,
             const std::function<bool()>& stop);

}  // namespace tessera::pack
