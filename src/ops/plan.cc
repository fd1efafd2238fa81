#include "ops/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/memory.h"

namespace tessera::ops {
namespace {

size_t index_of_fastest(std::span<const PlanCandidate> candidates) {
  size_t best = candidates.size();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].rejected.empty()) continue;
    if (best == candidates.size() || candidates[i].total() < candidates[best].total()) best = i;
  }
  return best;
}

std::string phases_of(const program::PhaseTimes& seconds) {
  std::string text;
  for (size_t i = 0; i < program::kPhases; ++i)
    if (seconds.at[i] > 0)
      text += fmt::format(", {} {:.3g} us", program::name_of(static_cast<program::Phase>(i)),
                          seconds.at[i] * 1e6);
  return text;
}

}  // namespace

std::string slower_than(const PlanCandidate& candidate, double seconds) {
  return fmt::format("{:.3g} us, slower than {:.3g} us", candidate.total() * 1e6, seconds * 1e6);
}

size_t choose_fastest(std::vector<PlanCandidate>& candidates) {
  const size_t best = index_of_fastest(candidates);
  if (best == candidates.size())
    return static_cast<size_t>(std::ranges::min_element(candidates, {}, &PlanCandidate::max_tile_bytes) -
                               candidates.begin());
  for (size_t i = 0; i < candidates.size(); ++i)
    if (i != best && candidates[i].rejected.empty())
      candidates[i].rejected = slower_than(candidates[i], candidates[best].total());
  return best;
}

std::string to_string(const PlanCandidate& chosen) {
  return fmt::format("{}; predicted {:.3g} us", chosen.partition, chosen.total() * 1e6);
}

std::string to_string(std::span<const PlanCandidate> candidates) {
  std::string text;
  for (const PlanCandidate& candidate : candidates)
    text += fmt::format("{}: {:.3g} us{}; {}; {}\n", candidate.partition, candidate.total() * 1e6,
                        phases_of(candidate.seconds), base::bytes_text(candidate.max_tile_bytes),
                        candidate.rejected.empty() ? "feasible" : "rejected: " + candidate.rejected);
  return text;
}

}  // namespace tessera::ops
