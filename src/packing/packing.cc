// Properties of packings, and the check that they contain their sequences.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/packing.h>

#include "packing/wide.h"

namespace tessera::pack {
namespace {

void require_fits(const Strategy& strategy, const Packing& packing) {
  uint64_t previous = uint64_t{packing.max_length} + 1;
  for (const Part& part : strategy.parts) {
    if (part.length == 0 || part.copies == 0 || part.length >= previous)
      throw Error(fmt::format("a pack lists {} sequences of length {} after length {}", part.copies,
                              part.length, previous));
    previous = part.length;
  }
  if (strategy.tokens() > packing.max_length)
    throw Error(fmt::format("a pack has {} tokens, more than the maximum of {}", strategy.tokens(),
                            packing.max_length));
  if (packing.max_per_pack != 0 && strategy.depth() > packing.max_per_pack)
    throw Error(fmt::format("a pack has {} sequences, more than the maximum of {}", strategy.depth(),
                            packing.max_per_pack));
}

}  // namespace

uint64_t Strategy::tokens() const {
  uint64_t sum = 0;
  for (const Part& part : parts) sum += uint64_t{part.length} * part.copies;
  return sum;
}

uint64_t Strategy::depth() const {
  uint64_t sum = 0;
  for (const Part& part : parts) sum += part.copies;
  return sum;
}

uint64_t Packing::packs() const {
  uint64_t sum = 0;
  for (const Strategy& strategy : strategies) sum += strategy.count;
  return sum;
}

uint64_t Packing::padding() const { return packs() * max_length - tokens; }

double Packing::efficiency() const {
  if (packs() == 0) return 1;
  return static_cast<double>(tokens) / (static_cast<double>(packs()) * max_length);
}

double Packing::packing_factor() const {
  if (packs() == 0) return 1;
  return static_cast<double>(sequences) / static_cast<double>(packs());
}

std::vector<uint64_t> Packing::depths() const {
  std::vector<uint64_t> packs_of_depth(1);
  for (const Strategy& strategy : strategies) {
    const size_t depth = strategy.depth();
    if (depth >= packs_of_depth.size()) packs_of_depth.resize(depth + 1);
    packs_of_depth[depth] += strategy.count;
  }
  return packs_of_depth;
}

void verify(const Packing& packing, const Histogram& histogram) {
  require_sane(histogram);
  if (packing.max_length != histogram.max_length())
    throw Error(fmt::format("the packs are of {} tokens, the histogram is of {}", packing.max_length,
                            histogram.max_length()));
  std::vector<WideCount> packed(histogram.counts.size());
  for (const Strategy& strategy : packing.strategies) {
    require_fits(strategy, packing);
    for (const Part& part : strategy.parts) packed[part.length] += WideCount{strategy.count} * part.copies;
  }
  for (size_t l = 0; l < packed.size(); ++l) {
    if (packed[l] != histogram.counts[l])
      throw Error(fmt::format("of {} sequences of length {}, {} are packed", histogram.counts[l], l,
                              static_cast<uint64_t>(packed[l])));
  }
}

}  // namespace tessera::pack
