#include "report/phases.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace tessera::report {
namespace {

using program::Phase;

constexpr std::array<size_t, program::kPhases> kColourOf = {5, 0, 2, 1, kGrey, 4};  // rearrange … control

bool is_waiting(Phase phase) { return phase == Phase::sync || phase == Phase::control; }
bool is_computing(Phase phase) { return !is_waiting(phase) && phase != Phase::exchange; }

}  // namespace

size_t phase_colour(Phase phase) { return kColourOf[static_cast<size_t>(phase)]; }

std::vector<Category> phase_categories() {
  std::vector<Category> categories;
  for (size_t p = 0; p < program::kPhases; ++p)
    categories.push_back({std::string(name_of(static_cast<Phase>(p))), kColourOf[p]});
  return categories;
}

Phase main_phase(const program::PhaseTimes& seconds) {
  Phase longest = Phase::sync;
  for (size_t p = 0; p < program::kPhases; ++p) {
    const auto phase = static_cast<Phase>(p);
    if (is_waiting(phase) || seconds[phase] == 0) continue;
    if (is_waiting(longest) || seconds[phase] > seconds[longest]) longest = phase;
  }
  return longest;
}

Phase main_phase(const std::vector<PhaseSpan>& phases) {
  program::PhaseTimes seconds;
  for (const auto& [phase, length] : phases) seconds[phase] += length;
  return main_phase(seconds);
}

Phase computing_phase(const std::vector<PhaseSpan>& phases) {
  std::vector<PhaseSpan> computing;
  std::copy_if(phases.begin(), phases.end(), std::back_inserter(computing),
               [](const PhaseSpan& span) { return is_computing(span.first); });
  return computing.empty() ? Phase::compute : main_phase(computing);
}

double before_computing(const std::vector<PhaseSpan>& phases) {
  double before = 0;
  for (const auto& [phase, seconds] : phases) {
    if (is_computing(phase)) return before;
    before += seconds;
  }
  return 0;
}

}  // namespace tessera::report
