// Clocks of the chips of a machine: a chip waits only for chips to which an exchange ties it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "compiler/executable.h"
#include "compiler/step_watch.h"
#include "program/cycles.h"

namespace tessera::compiler {

class ChipClocks {
 public:
  explicit ChipClocks(const machine::Machine& machine)
      : first_chip_(machine.first_chip()),
        exchange_overhead_(program::exchange_overhead_cycles(machine)),
        chips_(machine.chip_count()),
        streaming_until_(machine.chip_count()) {}

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

  // Collectives that run while chips do other things, on the chips of all replicas. Of several, finish()
  // takes the one that started last. On one chip all cycles count `times`.

  /// Whether data of collectives is under way that others have to wait for.
  bool has_under_way() const;
  /// Data of a collective gets under way as soon as all chips that take part are ready and no other
  /// collective uses its links; the chips go on.
  static void start(std::span<ChipClocks> replicas, const CollectiveCost& cost, double times = 1);
  /// Makes the chips wait for the data and for each other, and do their own part. Returns the cycles of the
  /// collective that no other steps hide, on the chip with the most.
  static program::PhaseTimes finish(std::span<ChipClocks> replicas, const CollectiveCost& cost,
                                    double times = 1);

  // Copies from and to streaming memory that run while chips do other things: the time beyond their busiest
  // tile's. Of several, finish_streaming() takes the one that started last. On one chip all cycles count
  // `times`.

  /// Whether such a copy is under way, for which others have to wait.
  bool is_streaming() const { return !streams_.empty(); }
  /// On each chip the copy gets under way as soon as the chip is ready and its streaming memory is free; the
  /// chips go on.
  void start_streaming(const ExchangeCost& cost, double times = 1);
  /// Makes the chips wait for the copy that started last, and do their own part. Returns the cycles of the
  /// copy that no other steps hide, on the chip with the most.
  program::PhaseTimes finish_streaming(double times = 1);

  /// Times by phase of the chip that ends last; waiting for other chips counts as sync.
  const program::PhaseTimes& slowest() const;
  double last() const { return slowest().total(); }
  /// Times by phase, by chip of the machine.
  const std::vector<program::PhaseTimes>& of_chips() const { return chips_; }

  /// Whether all chips that did anything since `before` advanced by equal times, held up nothing that is
  /// under way and did not wait for links; a repetition then takes the same times again.
  bool advanced_evenly_since(const ChipClocks& before) const;
  /// Repeats what happened since `before` another `times` times.
  void repeat_since(const ChipClocks& before, double times);

 private:
  /// The data of a collective while it is under way over links.
  struct Travel {
    const CollectiveCost* cost = nullptr;
    double ready = 0;  ///< when its chips were
    double begin = 0;
    double end = 0;
    bool has_arrived = false;
  };

  /// A copy from or to streaming memory that is under way.
  struct Stream {
    const ExchangeCost* cost = nullptr;
    std::vector<double> ends;  ///< by chip
  };

  program::PhaseTimes& at(uint32_t chip) { return chips_[chip - first_chip_]; }
  /// Calls visit(chip, cycles) for the chips that take part in a copy, from 0.
  template <class Visit>
  void each_streaming(const ExchangeCost& cost, const Visit& visit) const {
    if (is_one_chip()) return visit(size_t{0}, cost.cycles);
    for (const program::TiedChips& group : cost.tied)
      for (const uint32_t chip : group.chips) visit(size_t{chip - first_chip_}, group.cycles);
  }
  /// The cycles of a copy on a chip in which the chip's tiles are free.
  double streaming_alone(const ExchangeCost& cost, const program::PhaseTimes& cycles) const;
  void wait(program::PhaseTimes& chip, double until);
  /// When all chips that take part in a collective are ready.
  double ready_for(const CollectiveCost& cost) const;
  /// When the collectives that have begun no longer use the links of this one.
  double links_free_for(const CollectiveCost& cost) const;
  Travel& last_under_way();
  /// An exchange between chips goes first: data under way arrives later by as much.
  void hold_up(double begin, double cycles);
  bool left_links_alone_since(const ChipClocks& before) const;
  bool found_streaming_free_since(const ChipClocks& before) const;
  /// When the data under way arrives, in the order in which it started.
  std::vector<double> arrivals() const;
  program::PhaseTimes arrive(const CollectiveCost& cost, double arrival, double ready, double times);

  uint32_t first_chip_;
  double exchange_overhead_;
  std::vector<program::PhaseTimes> chips_;
  std::vector<double> streaming_until_;  ///< by chip: when copies so far leave its streaming memory free
  std::vector<Stream> streams_;
  std::vector<Travel> travels_;
  uint64_t queued_ = 0;  ///< collectives so far whose chips were ready before their links
  StepWatch* watch_ = nullptr;
};

/// Whether a copy runs beside a step, or has to wait for a copy that does.
bool streams_apart(const program::Program& program, const program::Copy& copy, const ChipClocks& clocks);

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
