// Clocks of the chips of a machine: a chip waits only for chips to which an exchange ties it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "compiler/executable.h"
#include "compiler/step_watch.h"

namespace tessera::compiler {

class ChipClocks {
 public:
  explicit ChipClocks(const machine::Machine& machine)
      : first_chip_(machine.first_chip()), chips_(machine.chip_count()) {}

  bool is_one_chip() const { return chips_.size() == 1; }
  /// Tells `watch` of all waiting from now on.
  void tell(StepWatch& watch) { watch_ = &watch; }
  /// Advances the clock of a machine with one chip.
  void add(const program::PhaseTimes& cycles) { chips_[0] += cycles; }

  /// Runs a compute set between its exchanges, given the cycles of each chip that has vertices.
  void run(const CompiledSet& set, const std::vector<ChipCycles>& computing);
  void run(const ExchangeCost& exchange);
  /// Runs something that all chips do together.
  void run_together(const program::PhaseTimes& cycles);
  /// Lets all chips wait until `cycles`.
  void wait_until(double cycles);

  /// Times by phase of the chip that ends last; waiting for other chips counts as sync.
  const program::PhaseTimes& slowest() const;
  double last() const { return slowest().total(); }
  /// Times by phase, by chip of the machine.
  const std::vector<program::PhaseTimes>& of_chips() const { return chips_; }

  /// Whether all chips that did anything since `before` advanced by equal times; a repetition then takes the
  /// same times again.
  bool advanced_evenly_since(const ChipClocks& before) const;
  /// Repeats what happened since `before` another `times` times.
  void repeat_since(const ChipClocks& before, double times);

 private:
  program::PhaseTimes& at(uint32_t chip) { return chips_[chip - first_chip_]; }
  void wait(program::PhaseTimes& chip, double until);

  uint32_t first_chip_;
  std::vector<program::PhaseTimes> chips_;
  StepWatch* watch_ = nullptr;
};

/// Bytes over links, summed over steps.
class LinkTotals {
 public:
  /// `shift` is added to the numbers of the chips.
  void add(const std::vector<program::LinkLoad>& loads, double times = 1, uint32_t shift = 0) {
    for (const program::LinkLoad& load : loads)
      bytes_[{load.from + shift, load.to + shift}] += load.bytes * times;
  }
  void add(const CompiledSet& set, double times = 1) {
    add(set.before.cost.links, times);
    add(set.after.cost.links, times);
  }
  void repeat_since(const LinkTotals& before, double times) {
    for (auto& [link, bytes] : bytes_) {
      const auto was = before.bytes_.find(link);
      bytes += (bytes - (was == before.bytes_.end() ? 0 : was->second)) * times;
    }
  }
  std::vector<program::LinkLoad> loads() const {
    std::vector<program::LinkLoad> loads;
    for (const auto& [link, bytes] : bytes_) loads.push_back({link.first, link.second, bytes});
    return loads;
  }

 private:
  std::map<std::pair<uint32_t, uint32_t>, double> bytes_;
};

}  // namespace tessera::compiler
