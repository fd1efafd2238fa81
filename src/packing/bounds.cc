#include "packing/bounds.h"

#include <algorithm>

#include "packing/greedy.h"
#include "packing/wide.h"

namespace tessera::pack {
namespace {

struct Threshold {
  uint32_t shortest = 1;  // t
  bool by_length = true;  // weight of lengths between: their length, or 1
  uint64_t heaviest = 1;
  uint64_t bound = 0;
};

std::vector<uint64_t> weights_of(const Threshold& threshold, uint32_t max_length) {
  std::vector<uint64_t> weights(size_t{max_length} + 1);
  for (uint32_t l = threshold.shortest; l <= max_length; ++l) {
    weights[l] = threshold.by_length ? l : 1;
    if (l > max_length - threshold.shortest) weights[l] = threshold.heaviest;
  }
  return weights;
}

Threshold best_threshold(const Histogram& histogram, uint32_t limit) {
  const uint32_t max_length = histogram.max_length();
  Threshold best;
  // Counts of sequences longer than max_length − t, and of those from t to max_length − t.
  uint64_t long_ones = 0;
  uint64_t between = histogram.sequences();
  uint64_t tokens_between = histogram.tokens();
  const auto leave = [&](uint64_t length, uint64_t count) {
    between -= count;
    tokens_between -= length * count;
  };
  for (uint32_t t = 1; 2 * uint64_t{t} <= uint64_t{max_length} + 1; ++t) {
    const uint32_t shortest_long = max_length - t + 1;
    leave(shortest_long, histogram.counts[shortest_long]);
    long_ones += histogram.counts[shortest_long];
    if (t > 1 && t - 1 < shortest_long) leave(t - 1, histogram.counts[t - 1]);
    const uint64_t most = std::min(limit, max_length / t);
    const uint64_t by_length = long_ones + ceil_divide(tokens_between, max_length);
    const uint64_t by_number = long_ones + ceil_divide(between, most);
    if (by_length > best.bound) best = {t, true, max_length, by_length};
    if (by_number > best.bound) best = {t, false, most, by_number};
  }
  return best;
}

}  // namespace

Certificate threshold_bound(const Histogram& histogram, uint32_t max_per_pack) {
  const Threshold best = best_threshold(histogram, depth_limit(max_per_pack));
  return {.histogram = histogram,
          .max_per_pack = max_per_pack,
          .weights = weights_of(best, histogram.max_length()),
          .heaviest = best.heaviest,
          .lower_bound = best.bound};
}

}  // namespace tessera::pack
