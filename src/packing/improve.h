// Improves packings by repacking a part.
#pragma once

#include <tessera/packing.h>

#include <functional>
#include <span>
#include <vector>

namespace tessera::pack {

/// Parameters of improve().
struct ImproveOptions {
  uint32_t max_per_pack = 0;
  uint64_t target = 0;            ///< stop at this number of packs
  std::span<const double> duals;  ///< of the relaxation, by length
  uint64_t seed = 0;
  uint32_t rounds = 0;   ///< maximum number of attempts
  double most_work = 0;  ///< limit of ColumnGeneration::work()
};

/// Removes packs that waste much by the duals and some others at random, packs their sequences again, and
/// keeps the result if it has no more packs (large neighbourhood search).
void improve(std::vector<Strategy>& packs, uint32_t max_length, const ImproveOptions& options,
             const std::function<bool()>& stop);

}  // namespace tessera::pack
