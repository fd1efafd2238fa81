#include "packing/improve.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "packing/bounds.h"
#include "packing/dive.h"
#include "packing/slots.h"

namespace tessera::pack {
namespace {

constexpr uint64_t kMostWasteful = 400;  // packs
constexpr uint32_t kFewestOthers = 24;   // packs chosen at random
constexpr uint32_t kDoublings = 4;       // of that number, cyclically
constexpr double kImproveRoundings[] = {0.6, 0.7, 0.5, 0.8};

/// How much less than 1 a pack weighs by the duals. The sum over all packs is the number of excess packs.
double waste(const Strategy& strategy, std::span<const double> duals) {
  double weight = 0;
  for (const Part& part : strategy.parts) weight += duals[part.length] * part.copies;
  return std::max(0.0, 1 - weight);
}

/// Moves packs from one list to another.
void take_out(Strategy& from, uint64_t count, std::vector<Strategy>& to) {
  if (count == 0) return;
  to.push_back({from.parts, count});
  from.count -= count;
}

std::vector<size_t> by_waste(const std::vector<Strategy>& packs, std::span<const double> duals) {
  std::vector<double> wastes;
  for (const Strategy& strategy : packs) wastes.push_back(waste(strategy, duals));
  std::vector<size_t> order(packs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return wastes[a] > wastes[b]; });
  return order;
}

/// Packs that together waste slightly more than one pack, and `others` at random.
std::vector<Strategy> choose(std::vector<Strategy>& packs, std::span<const double> duals, uint32_t others,
                             base::RandomSequence& random) {
  std::vector<Strategy> chosen;
  double wasted = 0;
  uint64_t taken = 0;
  for (const size_t i : by_waste(packs, duals)) {
    const double each = waste(packs[i], duals);
    if (each < 1e-9 || wasted >= 2 || taken >= kMostWasteful) break;
    const uint64_t needed = static_cast<uint64_t>((2 - wasted) / each) + 1;
    const uint64_t count = std::min({packs[i].count, needed, kMostWasteful - taken});
    take_out(packs[i], count, chosen);
    wasted += each * static_cast<double>(count);
    taken += count;
  }
  for (uint32_t i = 0; i < others; ++i) {
    Strategy& strategy = packs[random.below(static_cast<uint32_t>(packs.size()))];
    take_out(strategy, std::min<uint64_t>(strategy.count, 1 + random.below(2)), chosen);
  }
  return chosen;
}

Histogram sequences_of(const std::vector<Strategy>& packs, uint32_t max_length) {
  Histogram histogram = Histogram::of_max_length(max_length);
  for (const Strategy& strategy : packs)
    for (const Part& part : strategy.parts) histogram.counts[part.length] += strategy.count * part.copies;
  return histogram;
}

/// The sequences of the chosen packs, packed again; the packs themselves if that is no better.
Dived repacked(const std::vector<Strategy>& chosen, uint32_t max_length, uint32_t max_per_pack,
               const DiveOptions& how, const std::function<bool()>& stop) {
  const Histogram histogram = sequences_of(chosen, max_length);
  ColumnGeneration relaxation(histogram, max_per_pack, threshold_bound(histogram, max_per_pack));
  for (const Strategy& strategy : chosen) relaxation.add(strategy.parts);
  Dived result{chosen, 0};
  if (relaxation.solve(how.most_work, stop)) {
    Dived dived = dive(histogram, max_per_pack, relaxation, how, stop);
    if (packs_of(dived.packs) < how.give_up) result = std::move(dived);
  }
  result.work += relaxation.work();
  return result;
}

}  // namespace

void improve(std::vector<Strategy>& packs, uint32_t max_length, const ImproveOptions& options,
             const std::function<bool()>& stop) {
  base::RandomSequence random{base::RandomStream(options.seed)};
  double work = 0;
  for (uint32_t round = 0; round < options.rounds && work < options.most_work; ++round) {
    if (packs_of(packs) <= options.target || stop()) return;
    packs = merged(std::move(packs));
    const uint32_t others = kFewestOthers << (round % kDoublings);
    const std::vector<Strategy> chosen = choose(packs, options.duals, others, random);
    std::erase_if(packs, [](const Strategy& strategy) { return strategy.count == 0; });
    const DiveOptions how{.target = packs_of(chosen) - 1,
                          .round_up = kImproveRoundings[round / kDoublings % std::size(kImproveRoundings)],
                          .most_work = options.most_work - work,
                          .give_up = packs_of(chosen) + 1};
    const Dived result = repacked(chosen, max_length, options.max_per_pack, how, stop);
    work += result.work;
    packs.insert(packs.end(), result.packs.begin(), result.packs.end());
  }
}

}  // namespace tessera::pack
