#include "packing/dive.h"

#include <algorithm>
#include <cmath>

#include "packing/bounds.h"
#include "packing/greedy.h"
#include "packing/slots.h"

namespace tessera::pack {
namespace {

constexpr double kMostAtOnce = 0.25;   // fraction of the remaining packs that one step may round up
constexpr double kReducedCost = 0.02;  // limit for strategies from which the next relaxation starts

/// Takes the slots of one pack out of the histogram, if it has a sequence for each.
bool take_one(const std::vector<Part>& parts, Histogram& left) {
  for (const Part& part : parts)
    if (left.counts[part.length] < part.copies) return false;
  for (const Part& part : parts) left.counts[part.length] -= part.copies;
  return true;
}

std::vector<Strategy> rounded_down(const std::vector<FractionalStrategy>& solution) {
  std::vector<Strategy> result;
  for (const FractionalStrategy& strategy : solution)
    result.push_back({strategy.parts, static_cast<uint64_t>(strategy.count + kRounding)});
  return result;
}

/// Adds one pack of each strategy with a large fraction, while there are sequences for it.
void round_up(const std::vector<FractionalStrategy>& solution, double least, Histogram left,
              std::vector<Strategy>& counts) {
  std::vector<std::pair<double, size_t>> fractions;
  double packs = 0;
  uint64_t whole = 0;
  for (size_t i = 0; i < solution.size(); ++i) {
    fractions.emplace_back(solution[i].count - static_cast<double>(counts[i].count), i);
    packs += fractions.back().first;
    whole += counts[i].count;
  }
  std::sort(fractions.begin(), fractions.end(), std::greater<>());
  fill_slots(counts, left);
  size_t taken = 0;
  for (const auto& [fraction, i] : fractions) {
    const bool is_due = fraction >= least || (whole == 0 && taken == 0);
    if (!is_due || static_cast<double>(taken) > kMostAtOnce * packs) break;
    if (!take_one(solution[i].parts, left)) continue;
    ++counts[i].count;
    ++taken;
  }
}

}  // namespace

uint64_t packs_of(const std::vector<Strategy>& strategies) {
  uint64_t sum = 0;
  for (const Strategy& strategy : strategies) sum += strategy.count;
  return sum;
}

Dived dive(const Histogram& histogram, uint32_t max_per_pack, const ColumnGeneration& relaxation,
           const DiveOptions& options, const std::function<bool()>& stop) {
  Dived best;
  Histogram left = histogram;
  std::vector<Strategy> fixed;
  std::vector<FractionalStrategy> solution = relaxation.solution();
  std::vector<std::vector<Part>> pool = relaxation.strategies_within(kReducedCost);
  for (;;) {
    std::vector<Strategy> counts = rounded_down(solution);
    round_up(solution, options.round_up, left, counts);
    const uint64_t before = left.sequences();
    const std::vector<Strategy> filled = fill_slots(counts, left);
    fixed.insert(fixed.end(), filled.begin(), filled.end());
    std::vector<Strategy> completed = longest_pack_first(left, max_per_pack, fixed);
    if (best.packs.empty() || packs_of(completed) < packs_of(best.packs)) best.packs = std::move(completed);
    const uint64_t remaining = left.sequences();
    if (packs_of(best.packs) <= options.target || remaining == 0 || remaining == before || stop())
      return best;

    ColumnGeneration next(left, max_per_pack, threshold_bound(left, max_per_pack));
    for (const std::vector<Part>& parts : pool) next.add(parts);
    const bool is_solved = next.solve(options.most_work - best.work, stop);
    best.work += next.work();
    const double promised = static_cast<double>(packs_of(fixed)) + next.bound();
    const bool is_hopeless = std::ceil(promised - kRounding) >= static_cast<double>(options.give_up);
    if (!is_solved || is_hopeless) return best;
    solution = next.solution();
    pool = next.strategies_within(kReducedCost);
  }
}

}  // namespace tessera::pack
