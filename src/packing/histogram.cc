#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/packing.h>

#include <numeric>

#include "packing/certificate.h"
#include "packing/wide.h"

namespace tessera::pack {
namespace {

constexpr WideCount kMostTokens = WideCount{1} << 63;

}  // namespace

Histogram Histogram::of_max_length(uint32_t max_length) {
  return {std::vector<uint64_t>(size_t{max_length} + 1)};
}

uint64_t Histogram::sequences() const { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

uint64_t Histogram::tokens() const {
  uint64_t sum = 0;
  for (size_t l = 1; l < counts.size(); ++l) sum += l * counts[l];
  return sum;
}

void require_sane(const Histogram& histogram) {
  const std::vector<uint64_t>& counts = histogram.counts;
  if (counts.size() < 2 || counts.size() > kLongestMaximum + 1) {
    throw UsageError(fmt::format("a pack may have 1 to {} tokens, not {}", kLongestMaximum,
                                 counts.empty() ? 0 : counts.size() - 1));
  }
  if (counts[0] != 0) throw UsageError(fmt::format("{} sequences have length 0: omit them", counts[0]));
  WideCount sequences = 0;
  for (const uint64_t count : counts) sequences += count;
  if (sequences * histogram.max_length() >= kMostTokens) {
    throw UsageError(
        fmt::format("the sequences, each padded to {} tokens, have 2^63 tokens or more: pack a part of them",
                    histogram.max_length()));
  }
}

}  // namespace tessera::pack
