// One plan for all shards of a corpus.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/packing.h>

#include <algorithm>

#include "packing/bounds.h"
#include "packing/greedy.h"
#include "packing/slots.h"
#include "packing/wide.h"

namespace tessera::pack {
namespace {

/// Moves up to `most` packs of a strategy out of the histogram.
uint64_t take(const Strategy& strategy, uint64_t most, Histogram& left) {
  for (const Part& part : strategy.parts) most = std::min(most, left.counts[part.length] / part.copies);
  for (const Part& part : strategy.parts) left.counts[part.length] -= most * part.copies;
  return most;
}

}  // namespace

Packing plan_shard(const Packing& whole, const Histogram& shard) {
  require_sane(shard);
  if (whole.max_length != shard.max_length())
    throw UsageError(fmt::format("a plan of packs of {} tokens, for a shard in packs of {}", whole.max_length,
                                 shard.max_length()));
  Packing packing{.algorithm = whole.algorithm,
                  .max_length = whole.max_length,
                  .max_per_pack = whole.max_per_pack,
                  .strategies = {},
                  .sequences = shard.sequences(),
                  .tokens = shard.tokens(),
                  .certificate = threshold_bound(shard, whole.max_per_pack),
                  .cut_short = whole.cut_short};
  Histogram left = shard;
  std::vector<Strategy> begun;
  for (const Strategy& strategy : whole.strategies) {
    const auto fraction =
        WideCount{strategy.count} * packing.sequences / std::max<uint64_t>(whole.sequences, 1);
    const uint64_t packs = take(strategy, static_cast<uint64_t>(fraction), left);
    if (packs > 0) begun.push_back({strategy.parts, packs});
  }
  packing.strategies = merged(longest_pack_first(left, whole.max_per_pack, begun));
  return packing;
}

}  // namespace tessera::pack
