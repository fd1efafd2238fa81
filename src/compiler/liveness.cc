#include <fmt/format.h>

#include <algorithm>

#include "compiler/passes.h"

namespace tessera::compiler {
namespace {

using program::StepId;

/// Walks the schedule with calls expanded, one position for each compute set and copy.
class Schedule {
 public:
  explicit Schedule(Compilation& c) : c_(c) {}

  void walk(StepId id) {
    if (id == program::kNoStep) return;
    std::visit([this](const auto& step) { walk_inside(step); }, c_.program.steps().at(id));
  }

  uint32_t length() const { return position_; }

 private:
  void touch(PieceId id) {
    Piece& piece = c_.pieces[id];
    piece.first = std::min(piece.first, position_);
    piece.last = std::max(piece.last, position_);
    if (!loops_.empty()) loops_.back().push_back(id);
  }

  void touch(const Moves& moves) {
    for (const Move& move : moves.moves) {
      touch(move.from);
      touch(move.to);
    }
  }

  void touch_variable(program::VariableId variable) {
    for (PieceId id : c_.mapped[variable]) touch(id);
  }

  /// What a loop touches must outlive every turn: a turn may read what an earlier one wrote.
  template <class Body>
  void in_loop(const Body& body) {
    const uint32_t begin = position_;
    loops_.emplace_back();
    body();
    const std::vector<PieceId> touched = std::move(loops_.back());
    loops_.pop_back();
    const uint32_t end = std::max(begin, position_ == 0 ? 0 : position_ - 1);
    for (PieceId id : touched) {
      Piece& piece = c_.pieces[id];
      if (!piece.staging) {
        piece.first = std::min(piece.first, begin);
        piece.last = std::max(piece.last, end);
      }
      if (!loops_.empty()) loops_.back().push_back(id);
    }
  }

  void walk_inside(const program::Sequence& sequence) {
    for (StepId step : sequence.steps) walk(step);
  }
  void walk_inside(const program::Execute& execute) {
    SetPieces& set = c_.sets[execute.set];
    set.reached = true;
    touch(set.before);
    for (const FieldPiece& field : set.fields)
      if (!field.box.empty()) touch(field.piece);
    touch(set.after);
    ++position_;
  }
  void walk_inside(const program::Copy& copy) {
    c_.copies[copy.set].reached = true;
    touch(c_.copies[copy.set]);
    for (const program::CopyGroup& group : c_.program.copy_sets()[copy.set].groups)
      for (const auto& row : {group.source_offset, group.target_offset})
        if (row) touch_variable(row->index);
    ++position_;
  }
  void walk_inside(const program::Repeat& repeat) {
    in_loop([&] {
      if (repeat.counter) touch_variable(*repeat.counter);
      walk(repeat.body);
    });
  }
  void walk_inside(const program::While& loop) {
    in_loop([&] {
      walk(loop.test);
      touch_variable(loop.condition);
      walk(loop.body);
    });
  }
  void walk_inside(const program::If& branch) {
    touch_variable(branch.condition);
    walk(branch.then);
    walk(branch.otherwise);
  }
  void walk_inside(const program::Call& call) { walk(c_.program.functions().at(call.function).body); }

  Compilation& c_;
  uint32_t position_ = 0;
  std::vector<std::vector<PieceId>> loops_;
};

}  // namespace

std::string find_liveness(Compilation& c) {
  Schedule schedule(c);
  schedule.walk(c.program.main());
  c.positions = schedule.length();
  for (Piece& piece : c.pieces)
    if (piece.always_live) {
      piece.first = 0;
      piece.last = c.positions;
    }
  return fmt::format("{} supersteps and copies", c.positions);
}

}  // namespace tessera::compiler
