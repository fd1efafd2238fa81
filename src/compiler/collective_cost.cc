#include "compiler/collective_cost.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/chip_clocks.h"
#include "machine/model/links.h"
#include "program/collective.h"
#include "program/cycles.h"
#include "program/sizes.h"

namespace tessera::compiler {
namespace {

using program::Collective;
using program::Message;
using program::Phase;
using program::PhaseTimes;

/// A box that is exchanged.
struct Line {
  uint64_t elements = 0;
  Type type = Type::f32;
  auto operator<=>(const Line&) const = default;
};
using Lines = std::vector<Line>;

std::map<program::TileId, Lines> lines_by_tile(const program::Program& program,
                                               const Collective& collective) {
  std::map<program::TileId, Lines> by_tile;
  for (const program::Exchanged& exchanged : collective.variables) {
    const program::Variable& whole = program.variable(exchanged.whole);
    for (const program::MappedBox& mapped : whole.mapping)
      if (!mapped.box.empty()) by_tile[mapped.tile].push_back({mapped.box.elements(), whole.type});
  }
  return by_tile;
}

class CollectiveCount {
 public:
  CollectiveCount(const program::Program& program, const Collective& collective, const machine::Machine& part)
      : collective_(collective),
        machine_(part),
        links_(part),
        replicas_(program.replicas()),
        group_(program::group_size(collective, replicas_)),
        chips_(part.chip_count()) {
    std::set<uint32_t> chips;
    for (auto& [tile, lines] : lines_by_tile(program, collective)) {
      const uint32_t chip = tile == program::kShared ? part.first_chip() : part.chip_of(tile);
      chips.insert(chip);
      ++tiles_[std::move(lines)][chip - part.first_chip()];
    }
    cost_.chips.assign(chips.begin(), chips.end());
  }

  CollectiveCost count() {
    if (group_ == 1) return std::move(cost_);
    if (machine_.kind == machine::Kind::host) return count_on_host();
    for (const program::Round& round : program::rounds_of(collective_, replicas_)) add(round);
    if (collective_.kind != program::CollectiveKind::all_reduce) add_own_chunks();
    cost_.links = total_.loads();
    return std::move(cost_);
  }

 private:
  /// The rates of hosts' links are unknown: what remains is the cost of adding received data.
  CollectiveCost count_on_host() {
    for (const program::Round& round : program::rounds_of(collective_, replicas_)) {
      PhaseTimes adding;
      for (const Message& message : round.messages)
        for (const auto& [lines, on_chips] : tiles_)
          if (const PhaseTimes cycles = round.adds ? adding_cycles(lines, message) : PhaseTimes();
              cycles.total() > adding.total())
            adding = cycles;
      cost_.cycles += adding;
    }
    return std::move(cost_);
  }

  uint64_t elements_of(const Line& line, const Message& message) const {
    return program::chunk_begin(line.elements, message.first + message.chunks, group_) -
           program::chunk_begin(line.elements, message.first, group_);
  }
  double bytes_of(const Lines& lines, const Message& message) const {
    uint64_t bytes = 0;
    for (const Line& line : lines) bytes += elements_of(line, message) * size_of(line.type);
    return static_cast<double>(bytes);
  }

  void add(const program::Round& round) {
    std::map<uint32_t, double> over;
    uint32_t hops = 0;
    std::vector<const Message*> sent(replicas_), received(replicas_);
    for (const Message& message : round.messages) {
      sent[message.from] = &message;
      received[message.to] = &message;
      hops = std::max(hops, carry(message, over));
    }
    double busiest = 0;
    PhaseTimes adding;
    for (uint32_t r = 0; r < replicas_; ++r)
      for (const auto& [lines, on_chips] : tiles_) {
        busiest = std::max(busiest, program::traffic_cycles(machine_, traffic(lines, sent[r], received[r])));
        if (!round.adds || received[r] == nullptr) continue;
        const PhaseTimes cycles = adding_cycles(lines, *received[r]);
        if (cycles.total() > adding.total()) adding = cycles;
      }
    std::vector<program::LinkLoad> loads;
    const double of_tiles = busiest;
    for (const auto& [link, bytes] : over) {
      busiest = std::max(busiest, machine_.link_cycles(bytes));
      loads.push_back({links_[link].from, links_[link].to, bytes});
    }
    total_.add(loads);
    const double latency = hops * machine_.link_latency_cycles();
    cost_.under_way += busiest - of_tiles + latency;
    cost_.cycles[Phase::exchange] += busiest + latency + program::exchange_overhead_cycles(machine_);
    cost_.cycles[Phase::sync] += machine_.chip_sync_cycles;
    if (!round.adds) return;
    cost_.cycles += adding;
    cost_.cycles[Phase::control] += program::superstep_cycles(machine_, 1);
  }

  program::TileTraffic traffic(const Lines& lines, const Message* sent, const Message* received) const {
    program::TileTraffic traffic;
    for (const Message* message : {sent, received})
      if (message != nullptr) traffic.transfers += static_cast<uint32_t>(lines.size());
    if (sent != nullptr) traffic.out = bytes_of(lines, *sent);
    if (received != nullptr) traffic.in = bytes_of(lines, *received);
    return traffic;
  }

  /// Each chip of a replica sends to the chip at its place in the other. Returns the links on the longest
  /// route.
  uint32_t carry(const Message& message, std::map<uint32_t, double>& over) {
    std::vector<double> of_chip(chips_);
    for (const auto& [lines, on_chips] : tiles_)
      for (const auto& [chip, count] : on_chips) of_chip[chip] += count * bytes_of(lines, message);
    uint32_t hops = 0;
    const uint32_t from = machine_.first_chip() + message.from * chips_;
    const uint32_t to = machine_.first_chip() + message.to * chips_;
    for (uint32_t chip = 0; chip < chips_; ++chip) {
      if (of_chip[chip] == 0) continue;
      const std::vector<uint32_t> route = links_.route(from + chip, to + chip);
      hops = std::max(hops, static_cast<uint32_t>(route.size()));
      for (const uint32_t link : route) over[link] += of_chip[chip];
      if (message.from == 0) cost_.bytes += static_cast<uint64_t>(of_chip[chip]);
    }
    return hops;
  }

  /// One vertex for each box, executed like other vertices: single-worker ones are dealt to the workers.
  PhaseTimes adding_cycles(const Lines& lines, const Message& message) const {
    PhaseTimes whole_tile;
    std::vector<PhaseTimes> workers(machine_.workers_per_tile);
    size_t dealt = 0;
    for (const Line& line : lines) {
      const auto elements = static_cast<uint32_t>(elements_of(line, message));
      if (elements == 0) continue;
      const program::FieldView field{nullptr, line.type, 1, elements, elements, 1};
      const std::array<program::FieldView, 3> fields = {field, field, field};
      const PhaseTimes cost = collective_.add->cost({fields, {}}, machine_);
      if (collective_.add->workers == program::Workers::whole_tile)
        whole_tile += cost;
      else
        workers[dealt++ % workers.size()] += cost;
    }
    if (dealt > 0)
      whole_tile += std::ranges::max_element(workers, {}, &PhaseTimes::total)
                        ->scaled(static_cast<double>(workers.size()));
    return whole_tile;
  }

  /// Adds the copies between the part and its place in the whole, on each tile.
  void add_own_chunks() {
    double busiest = 0;
    for (const auto& [lines, on_chips] : tiles_)
      busiest = std::max(busiest, bytes_of(lines, {0, 0, group_ - 1, 1}) / machine_.load_bytes_per_cycle);
    cost_.cycles[Phase::exchange] += busiest;
  }

  const Collective& collective_;
  const machine::Machine& machine_;
  machine::Links links_;
  uint32_t replicas_;
  uint32_t group_;
  uint32_t chips_;
  std::map<Lines, std::map<uint32_t, uint32_t>> tiles_;  ///< tiles with such lines, by chip of the replica
  LinkTotals total_;
  CollectiveCost cost_;
};

/// The rounds that need code of their own. In the rounds of a ring, all replicas do the same with different
/// chunks, which depend on the replica and so are known only at run time: the rounds that add are one loop,
/// and the rounds that pass data on are another.
std::vector<program::Round> rounds_with_code(const Collective& collective, uint32_t replicas) {
  std::vector<program::Round> rounds = program::rounds_of(collective, replicas);
  if (collective.algorithm != program::CollectiveAlgorithm::ring) return rounds;
  const auto repeated = std::ranges::unique(rounds, {}, &program::Round::adds);
  rounds.erase(repeated.begin(), repeated.end());
  return rounds;
}

}  // namespace

CollectiveCost cost_of(const program::Program& program, const Collective& collective,
                       const machine::Machine& part) {
  return CollectiveCount(program, collective, part).count();
}

void count_code(const program::Program& program, const Collective& collective,
                std::vector<TileMemory>& memory) {
  const std::vector<program::Round> rounds = rounds_with_code(collective, program.replicas());
  const uint32_t group = program::group_size(collective, program.replicas());
  for (const auto& [tile, lines] : lines_by_tile(program, collective)) {
    if (tile == program::kShared) continue;
    TileMemory& of_tile = memory.at(tile);
    for (const program::Round& round : rounds) {
      const Message& message = round.messages.front();
      of_tile[MemoryUse::exchange_code] += program::kExchangeCodeBytes;
      for (const Line& line : lines) {
        const uint64_t bytes = line.elements * message.chunks / group * size_of(line.type);
        of_tile[MemoryUse::exchange_code] += 2 * program::transfer_code_bytes(bytes);
        if (round.adds) of_tile[MemoryUse::vertex_state] += program::vertex_state_bytes(*collective.add);
      }
      if (round.adds) of_tile[MemoryUse::control_code] += program::control_code_bytes(1);
    }
    if (program::sums(collective.kind)) of_tile[MemoryUse::vertex_code] += collective.add->code_bytes;
  }
}

}  // namespace tessera::compiler
