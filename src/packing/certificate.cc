#include "packing/certificate.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "base/memory.h"
#include "packing/greedy.h"
#include "packing/pricing.h"
#include "packing/wide.h"

namespace tessera::pack {
namespace {

// Below 2^53 / depth for packs of thousands, so that all JSON readers keep the numbers exact.
constexpr double kScales[] = {1e3, 1e6, 1e9, 1e12};
// Larger ones would overflow the sums of a pack.
constexpr uint64_t kLargestWeight = uint64_t{1} << 62;

/// The relevant weights: of lengths that occur, except those no heavier than a shorter one.
struct Items {
  std::vector<uint32_t> lengths;
  std::vector<uint64_t> weights;
};

Items worthwhile_items(const Certificate& certificate) {
  Items items;
  uint64_t heaviest = 0;
  for (const uint32_t length : lengths_of(certificate.histogram)) {
    if (certificate.weights[length] <= heaviest) continue;
    heaviest = certificate.weights[length];
    items.lengths.push_back(length);
    items.weights.push_back(heaviest);
  }
  return items;
}

/// The exact largest weight of a pack of at most this many sequences; 0: any number.
uint64_t heaviest_pack(const Certificate& certificate, uint32_t max_per_pack) {
  const Items items = worthwhile_items(certificate);
  Knapsack<uint64_t> knapsack(items.lengths, certificate.histogram.max_length(), depth_limit(max_per_pack));
  knapsack.solve(items.weights);
  return knapsack.heaviest();
}

/// Throws Error if there is too little memory for the heaviest pack: a file may ask for any number of tables.
void require_memory_for(const Certificate& certificate, uint32_t max_per_pack) {
  const Items items = worthwhile_items(certificate);
  base::require_memory(Knapsack<uint64_t>::bytes_of(items.lengths, certificate.histogram.max_length(),
                                                    depth_limit(max_per_pack)),
                       "verifying a certificate");
}

WideCount total_weight(const Certificate& certificate) {
  WideCount sum = 0;
  for (size_t l = 0; l < certificate.weights.size(); ++l)
    sum += WideCount{certificate.histogram.counts[l]} * certificate.weights[l];
  return sum;
}

void complete(Certificate& certificate) {
  certificate.heaviest = std::max<uint64_t>(1, heaviest_pack(certificate, certificate.max_per_pack));
  certificate.lower_bound = ceil_divide(total_weight(certificate), certificate.heaviest);
}

void require_consistent(const Certificate& certificate) {
  require_sane(certificate.histogram);
  if (certificate.weights.size() != certificate.histogram.counts.size())
    throw UsageError(fmt::format("a certificate for lengths up to {} has weights for {}",
                                 certificate.histogram.max_length(), certificate.weights.size()));
  if (certificate.heaviest == 0) throw Error("a certificate claims that no pack weighs anything");
  const uint64_t largest = *std::max_element(certificate.weights.begin(), certificate.weights.end());
  if (WideCount{largest} * certificate.histogram.max_length() > kLargestWeight)
    throw Error(
        fmt::format("a certificate has a weight of {}, so that packs could weigh 2^62 or "
                    "more: scale the weights down",
                    largest));
}

}  // namespace

std::vector<uint32_t> lengths_of(const Histogram& histogram) {
  std::vector<uint32_t> lengths;
  for (uint32_t l = 1; l <= histogram.max_length(); ++l)
    if (histogram.counts[l] > 0) lengths.push_back(l);
  return lengths;
}

Certificate integer_certificate(const Histogram& histogram, uint32_t max_per_pack,
                                std::span<const double> duals) {
  const std::vector<uint32_t> lengths = lengths_of(histogram);
  Certificate best;
  for (const double scale : kScales) {
    Certificate certificate{.histogram = histogram, .max_per_pack = max_per_pack, .weights = {}};
    certificate.weights.resize(histogram.counts.size());
    for (size_t i = 0; i < lengths.size(); ++i)
      certificate.weights[lengths[i]] = static_cast<uint64_t>(std::max(0.0, duals[i] * scale));
    complete(certificate);
    if (certificate.lower_bound > best.lower_bound) best = std::move(certificate);
  }
  return best;
}

void verify(const Certificate& certificate) {
  require_consistent(certificate);
  // Unlimited depth is computed faster, and often gives the same weight.
  require_memory_for(certificate, 0);
  uint64_t heaviest = heaviest_pack(certificate, 0);
  if (heaviest > certificate.heaviest && certificate.max_per_pack != 0) {
    require_memory_for(certificate, certificate.max_per_pack);
    heaviest = heaviest_pack(certificate, certificate.max_per_pack);
  }
  if (heaviest > certificate.heaviest)
    throw Error(fmt::format("a pack can weigh {}, more than the {} that the certificate claims", heaviest,
                            certificate.heaviest));
  const uint64_t bound = ceil_divide(total_weight(certificate), certificate.heaviest);
  if (bound != certificate.lower_bound)
    throw Error(
        fmt::format("the weights prove {} packs, the certificate claims {}", bound, certificate.lower_bound));
}

}  // namespace tessera::pack
