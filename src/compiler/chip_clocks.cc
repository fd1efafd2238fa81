#include "compiler/chip_clocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "program/program.h"

namespace tessera::compiler {

using program::Phase;
using program::PhaseTimes;

namespace {

std::pair<uint32_t, uint32_t> ends_of(const program::LinkLoad& load) { return {load.from, load.to}; }

/// Both are ascending, as LinkTotals gives them.
bool share_links(const std::vector<program::LinkLoad>& a, const std::vector<program::LinkLoad>& b) {
  auto one = a.begin();
  for (const program::LinkLoad& other : b) {
    while (one != a.end() && ends_of(*one) < ends_of(other)) ++one;
    if (one != a.end() && ends_of(*one) == ends_of(other)) return true;
  }
  return false;
}

}  // namespace

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
    if (group.chips.size() > 1) hold_up(begin, group.cycles.total());
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

double ChipClocks::ready_for(const CollectiveCost& cost) const {
  double ready = 0;
  for (const uint32_t chip : cost.chips) ready = std::max(ready, chips_[chip - first_chip_].total());
  return ready;
}

double ChipClocks::links_free_for(const CollectiveCost& cost) const {
  double free = 0;
  for (const Travel& travel : travels_)
    if (share_links(travel.cost->links, cost.links)) free = std::max(free, travel.end);
  return free;
}

bool ChipClocks::has_under_way() const {
  return std::ranges::any_of(travels_, [](const Travel& travel) { return !travel.has_arrived; });
}

ChipClocks::Travel& ChipClocks::last_under_way() {
  return *std::find_if(travels_.rbegin(), travels_.rend(),
                       [](const Travel& travel) { return !travel.has_arrived; });
}

void ChipClocks::hold_up(double begin, double cycles) {
  for (Travel& travel : travels_) {
    if (travel.has_arrived || travel.end <= begin || begin + cycles <= travel.ready) continue;
    if (travel.begin >= begin) travel.begin += cycles;
    travel.end += cycles;
  }
}

std::vector<double> ChipClocks::arrivals() const {
  std::vector<double> ends;
  for (const Travel& travel : travels_)
    if (!travel.has_arrived) ends.push_back(travel.end);
  return ends;
}

/// Whether the steps since `before` neither held anything up nor waited for links, and will not when
/// repeated: data that arrived left its links before any chip was done, and data under way was ready before
/// any began.
bool ChipClocks::left_links_alone_since(const ChipClocks& before) const {
  if (queued_ != before.queued_ || arrivals() != before.arrivals()) return false;
  double from = std::numeric_limits<double>::infinity(), until = from;
  for (size_t chip = 0; chip < chips_.size(); ++chip) {
    const double began = before.chips_[chip].total(), ended = chips_[chip].total();
    if (began == ended) continue;
    from = std::min(from, began);
    until = std::min(until, ended);
  }
  return std::ranges::none_of(travels_, [&](const Travel& travel) {
    return travel.has_arrived ? travel.end > until : travel.ready > from;
  });
}

void ChipClocks::start(std::span<ChipClocks> replicas, const CollectiveCost& cost, double times) {
  double ready = 0, begin = 0;
  for (const ChipClocks& clocks : replicas) {
    ready = std::max(ready, clocks.ready_for(cost));
    begin = std::max(begin, clocks.links_free_for(cost));
  }
  const bool queues = begin > ready;
  begin = std::max(begin, ready);
  for (ChipClocks& clocks : replicas) {
    if (queues) ++clocks.queued_;
    const double earliest = std::ranges::min_element(clocks.chips_, {}, &PhaseTimes::total)->total();
    std::erase_if(clocks.travels_,
                  [&](const Travel& travel) { return travel.has_arrived && travel.end <= earliest; });
    clocks.travels_.push_back({&cost, ready, begin, begin + cost.under_way * times});
  }
}

PhaseTimes ChipClocks::finish(std::span<ChipClocks> replicas, const CollectiveCost& cost, double times) {
  double arrival = 0, ready = 0;
  for (ChipClocks& clocks : replicas) {
    arrival = std::max(arrival, clocks.last_under_way().end);
    ready = std::max(ready, clocks.ready_for(cost));
  }
  PhaseTimes most;
  for (ChipClocks& clocks : replicas) {
    const PhaseTimes own = clocks.arrive(cost, arrival, std::max(arrival, ready), times);
    if (own.total() > most.total()) most = own;
  }
  return most;
}

PhaseTimes ChipClocks::arrive(const CollectiveCost& cost, double arrival, double ready, double times) {
  Travel& travel = last_under_way();
  travel.end = arrival;
  travel.has_arrived = true;
  if (watch_ != nullptr) watch_->travelled(travel.begin, arrival);
  PhaseTimes own = cost.cycles.scaled(times);
  own[Phase::exchange] -= cost.under_way * times;
  double waited = 0;
  for (const uint32_t number : cost.chips) {
    PhaseTimes& chip = at(number);
    // Before the others are ready a chip waits for them, and not for data.
    waited = std::max(waited, arrival - std::max(chip.total(), travel.ready));
    // Waiting for data counts as exchange, as it does where nothing runs beside the collective.
    chip[Phase::exchange] += std::max(0.0, arrival - chip.total());
    wait(chip, ready);
    chip += own;
  }
  own[Phase::exchange] += waited;
  return own;
}

double ChipClocks::streaming_alone(const ExchangeCost& cost, const PhaseTimes& cycles) const {
  return std::max(0.0, cycles[Phase::exchange] - exchange_overhead_ - cost.tiles.most);
}

void ChipClocks::start_streaming(const ExchangeCost& cost, double times) {
  Stream stream{&cost, std::vector<double>(chips_.size())};
  each_streaming(cost, [&](size_t chip, const PhaseTimes& cycles) {
    const double begin = std::max(chips_[chip].total(), streaming_until_[chip]);
    stream.ends[chip] = streaming_until_[chip] = begin + streaming_alone(cost, cycles) * times;
  });
  streams_.push_back(std::move(stream));
}

PhaseTimes ChipClocks::finish_streaming(double times) {
  const Stream stream = std::move(streams_.back());
  streams_.pop_back();
  PhaseTimes most;
  each_streaming(*stream.cost, [&](size_t number, const PhaseTimes& cycles) {
    PhaseTimes& chip = chips_[number];
    PhaseTimes own = cycles.scaled(times);
    own[Phase::exchange] -= streaming_alone(*stream.cost, cycles) * times;
    // Waiting for data counts as exchange, as it does where nothing runs beside the copy.
    const double waited = std::max(0.0, stream.ends[number] - chip.total());
    chip[Phase::exchange] += waited;
    chip += own;
    own[Phase::exchange] += waited;
    if (own.total() > most.total()) most = own;
  });
  return most;
}

/// Whether no chip's copies waited for streaming memory, so that they will not when repeated: each is
/// completed before its chip goes on to the next repetition.
bool ChipClocks::found_streaming_free_since(const ChipClocks& before) const {
  for (size_t chip = 0; chip < chips_.size(); ++chip)
    if (streaming_until_[chip] != before.streaming_until_[chip] &&
        before.streaming_until_[chip] > before.chips_[chip].total())
      return false;
  return true;
}

const PhaseTimes& ChipClocks::slowest() const {
  return *std::ranges::max_element(chips_, {}, &PhaseTimes::total);
}

bool ChipClocks::advanced_evenly_since(const ChipClocks& before) const {
  constexpr double kRounding = 1e-12;
  if (!left_links_alone_since(before) || !found_streaming_free_since(before)) return false;
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

bool streams_apart(const program::Program& program, const program::Copy& copy, const ChipClocks& clocks) {
  if (copy.beside != program::kNoStep) return true;
  return clocks.is_streaming() &&
         std::ranges::any_of(program.copy_sets()[copy.set].groups, [&](const program::CopyGroup& group) {
           return program.variable(group.from).streaming || program.variable(group.to).streaming;
         });
}

}  // namespace tessera::compiler
