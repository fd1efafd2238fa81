// Which pieces each compute set, copy set and step of control flow touches.
#pragma once

#include "compiler/pieces.h"

namespace tessera::compiler {

/// Notes which pieces each toucher touches, and how.
class TouchNotes {
 public:
  explicit TouchNotes(Compilation& c) : c_(c), touchers_(c.program) {}

  void note(program::ComputeSetId id, const SetPieces& pieces, const CompiledSet& compiled) {
    for (const CompiledVertex& vertex : compiled.vertices) note(id, pieces, vertex);
    for (const Move& move : pieces.before.moves) log_.read(move.from);
    for (const Move& move : pieces.after.moves) log_.write(move.to, move.to_box.elements());
    close(touchers_.of_set(id));
  }

  /// Moves of the present copy set.
  void note(const Moves& moves) {
    for (const Move& move : moves.moves) {
      log_.read(move.from);
      const bool anywhere = move.runtime != kNoRuntimeRow && moves.runtime_rows[move.runtime].to.row;
      log_.write(move.to, anywhere ? 0 : move.to_box.elements());
    }
  }

  /// The rest of a copy set.
  void note(program::CopySetId id) {
    for (const program::CopyGroup& group : c_.program.copy_sets()[id].groups)
      for (const auto& row : {group.source_offset, group.target_offset})
        if (row) log_.read(control(row->index));
    close(touchers_.of_copy(id));
  }

  void note_control() {
    const std::vector<program::Step>& steps = c_.program.steps();
    for (program::StepId id = 0; id < steps.size(); ++id) {
      if (const auto* repeat = std::get_if<program::Repeat>(&steps[id]); repeat && repeat->counter)
        log_.write(control(*repeat->counter), 1);
      else if (const auto* loop = std::get_if<program::While>(&steps[id]))
        log_.read(control(loop->condition));
      else if (const auto* branch = std::get_if<program::If>(&steps[id]))
        log_.read(control(branch->condition));
      close(touchers_.of_control(id));
    }
  }

 private:
  void note(program::ComputeSetId id, const SetPieces& pieces, const CompiledVertex& vertex) {
    const program::VertexGroup& group = c_.program.compute_sets()[id].groups[vertex.group];
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const FieldPiece& field = pieces.fields[vertex.first_place + f];
      if (field.box.empty()) continue;
      const program::FieldSpec& spec = group.codelet->fields[f];
      if (c_.pieces[field.piece].staging) {
        log_.use(field.piece);
        continue;
      }
      if (spec.access != program::Access::out && !spec.scratch) log_.read(field.piece);
      // Of a scattered field nobody says which of it is written.
      if (spec.access != program::Access::in)
        log_.write(field.piece, spec.scattered ? 0 : field.box.elements());
    }
  }

  PieceId control(program::VariableId id) const { return c_.mapped[id].at(0); }

  void close(ToucherId toucher) {
    log_.close([&](PieceId id) { return c_.pieces[id].box.elements(); },
               [&](PieceId id, Touch touch) {
                 TouchChain& chain = c_.pieces[id].touches;
                 chain = c_.chains.extended(chain, toucher, touch);
               });
  }

  Compilation& c_;
  Touchers touchers_;
  TouchLog log_;
};

}  // namespace tessera::compiler
