// Costs of exchanges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
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
      if (goes_on_with(move)) continue;
      close();
      open(move);
    }
    is_empty_ = is_empty_ && moves.moves.empty();
  }

  /// The cost of the moves added since the last call.
  ExchangeCost count() {
    ExchangeCost cost;
    if (std::exchange(is_empty_, true)) return cost;
    close();
    if (!is_tiled(c_)) {
      cost.cycles = program::host_copy_cycles(c_.machine, std::exchange(host_bytes_, 0));
      return cost;
    }
    traffic_.count();
    cost.cycles = traffic_.cycles();
    cost.bytes = traffic_.sent_bytes();
    cost.tied = traffic_.tied();
    cost.links = traffic_.link_loads();
    const auto [first, end] = traffic_.tiles_in_use();
    const bool all = first == 0 && end == c_.machine.tiles;
    if (all) cost.tiles.least = program::traffic_cycles(c_.machine, traffic_.of(first));
    for (program::TileId tile = first; tile < end; ++tile) {
      c_.memory[tile][MemoryUse::exchange_code] += traffic_.code_bytes(tile);
      const double cycles = program::traffic_cycles(c_.machine, traffic_.of(tile));
      cost.tiles.least = std::min(cost.tiles.least, cycles);
      cost.tiles.mean += cycles / c_.machine.tiles;
      cost.tiles.most = std::max(cost.tiles.most, cycles);
    }
    return cost;
  }

 private:
  using Box = program::Box;

  /// Moves that continue each other in the memory of both tiles, as a row of one matrix and a column of
  /// another do, and so are one transfer. They may be added by several calls.
  struct Transfer {
    PieceId from;
    PieceId to;
    Box box;  ///< of the variable of `from`
    bool gathered;
    std::optional<uint64_t> end;  ///< elements of `to` before its end; none: no move continues it
  };

  bool may_be_joined(const Move& move) const {
    return !move.gathered && move.runtime == kNoRuntimeRow && is_contiguous(c_.pieces[move.to], move.to_box);
  }
  void open(const Move& move) {
    open_ = Transfer{move.from, move.to, move.from_box, move.gathered, {}};
    if (may_be_joined(move)) open_->end = offset_after(c_.pieces[move.to], move.to_box);
  }
  /// Adds a move to the open transfer, if it continues that.
  bool goes_on_with(const Move& move) {
    if (!open_ || !open_->end || move.from != open_->from || move.to != open_->to || !may_be_joined(move))
      return false;
    const uint64_t end = offset_after(c_.pieces[move.to], move.to_box);
    if (end != *open_->end + move.to_box.elements()) return false;
    if (!extend(open_->box, move.from_box, c_.pieces[move.from].box)) return false;
    open_->end = end;
    return true;
  }
  /// Counts the open transfer.
  void close() {
    if (!open_) return;
    const Piece &from = c_.pieces[open_->from], &to = c_.pieces[open_->to];
    const Box& box = open_->box;
    const uint64_t element = size_of(c_.program.variable(from.variable).type);
    if (!is_tiled(c_))
      host_bytes_ += box.elements() * element;
    else if (is_streaming(c_, from) || is_streaming(c_, to))
      traffic_.add_streamed(to.tile, box.elements() * element, is_streaming(c_, from));
    else
      traffic_.add(from.tile, to.tile, from.variable, box, element, open_->gathered);
    open_.reset();
  }

  static bool is_contiguous(const Piece& piece, const Box& box) {
    return box.rows == 1 || box.cols == piece.box.cols;
  }
  /// Elements of a piece before the end of a contiguous box.
  static uint64_t offset_after(const Piece& piece, const Box& box) {
    const uint64_t row = box.row - piece.box.row, col = box.col - piece.box.col;
    return row * piece.box.cols + col + box.elements();
  }
  /// Extends a contiguous box of a piece by one that follows it, if both are one box.
  static bool extend(Box& box, const Box& next, const Box& piece) {
    const bool is_beside =
        box.rows == 1 && next.rows == 1 && next.row == box.row && next.col == box.col_end();
    const bool is_below = box.cols == piece.cols && next.cols == piece.cols && next.row == box.row_end();
    if (is_beside) box.cols += next.cols;
    if (is_below) box.rows += next.rows;
    return is_beside || is_below;
  }

  Compilation& c_;
  program::Traffic traffic_;
  std::optional<Transfer> open_;
  uint64_t host_bytes_ = 0;
  bool is_empty_ = true;
};

}  // namespace tessera::compiler
