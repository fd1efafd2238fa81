// Costs of exchanges.
#pragma once

#include <algorithm>
#include <utility>

#include "compiler/pieces.h"
#include "program/traffic.h"

namespace tessera::compiler {

/// Counts the costs and the code of exchanges; on a host, the costs of copies.
class ExchangeCount {
 public:
  explicit ExchangeCount(Compilation& c) : c_(c), traffic_(c.machine) {}

  void add(const Moves& moves) {
    for (const Move& move : moves.moves) {
      const Piece &from = c_.pieces[move.from], &to = c_.pieces[move.to];
      const uint64_t element = size_of(c_.program.variable(from.variable).type);
      if (!is_tiled(c_))
        host_bytes_ += move.to_box.elements() * element;
      else if (is_streaming(c_, from) || is_streaming(c_, to))
        traffic_.add_streamed(to.tile, move.to_box.elements() * element, is_streaming(c_, from));
      else
        traffic_.add(from.tile, to.tile, from.variable, move.from_box, element, move.gathered);
    }
    is_empty_ = is_empty_ && moves.moves.empty();
  }

  /// The cost of the moves added since the last call.
  ExchangeCost count() {
    ExchangeCost cost;
    if (std::exchange(is_empty_, true)) return cost;
    if (!is_tiled(c_)) {
      cost.cycles = program::host_copy_cycles(c_.machine, std::exchange(host_bytes_, 0));
      return cost;
    }
    traffic_.count();
    cost.cycles = traffic_.cycles();
    cost.bytes = traffic_.sent_bytes();
    cost.tied = traffic_.tied();
    cost.links = traffic_.link_loads();
    cost.tiles.least = program::traffic_cycles(c_.machine, traffic_.of(0));
    for (program::TileId tile = 0; tile < c_.machine.tiles; ++tile) {
      c_.memory[tile][MemoryUse::exchange_code] += traffic_.code_bytes(tile);
      const double cycles = program::traffic_cycles(c_.machine, traffic_.of(tile));
      cost.tiles.least = std::min(cost.tiles.least, cycles);
      cost.tiles.mean += cycles / c_.machine.tiles;
      cost.tiles.most = std::max(cost.tiles.most, cycles);
    }
    return cost;
  }

 private:
  Compilation& c_;
  program::Traffic traffic_;
  uint64_t host_bytes_ = 0;
  bool is_empty_ = true;
};

}  // namespace tessera::compiler
