#include "compiler/chip_clocks.h"

#include <algorithm>
#include <cmath>

namespace tessera::compiler {

using program::Phase;
using program::PhaseTimes;

void ChipClocks::wait(PhaseTimes& chip, double until) {
  const double from = chip.total();
  if (until <= from) return;
  if (watch_ != nullptr) watch_->wait(static_cast<size_t>(&chip - chips_.data()), from, until);
  chip[Phase::sync] += until - from;
}

void ChipClocks::run(const ExchangeCost& exchange) {
  for (const program::TiedChips& group : exchange.tied) {
    double begin = 0;
    for (const uint32_t chip : group.chips) begin = std::max(begin, at(chip).total());
    for (const uint32_t chip : group.chips) {
      wait(at(chip), begin);
      at(chip) += group.cycles;
    }
  }
}

void ChipClocks::run(const CompiledSet& set, const std::vector<ChipCycles>& computing) {
  run(set.before.cost);
  for (const ChipCycles& chip : computing) at(chip.chip) += chip.cycles;
  run(set.after.cost);
}

void ChipClocks::run_together(const PhaseTimes& cycles) {
  wait_until(last());
  for (PhaseTimes& chip : chips_) chip += cycles;
}

void ChipClocks::wait_until(double cycles) {
  for (PhaseTimes& chip : chips_) wait(chip, cycles);
}

const PhaseTimes& ChipClocks::slowest() const {
  return *std::ranges::max_element(chips_, {}, &PhaseTimes::total);
}

bool ChipClocks::advanced_evenly_since(const ChipClocks& before) const {
  constexpr double kRounding = 1e-12;
  double advance = 0;
  for (size_t chip = 0; chip < chips_.size(); ++chip) {
    const double its = chips_[chip].total() - before.chips_[chip].total();
    if (its == 0) continue;
    if (advance == 0) advance = its;
    if (std::abs(its - advance) > kRounding * chips_[chip].total()) return false;
  }
  return true;
}

void ChipClocks::repeat_since(const ChipClocks& before, double times) {
  for (size_t chip = 0; chip < chips_.size(); ++chip) {
    PhaseTimes passed = chips_[chip];
    passed += before.chips_[chip].scaled(-1);
    chips_[chip] += passed.scaled(times);
  }
}

}  // namespace tessera::compiler
