// The pieces that each compute set, copy set and step of control flow touches.
#pragma once

#include "compiler/pieces.h"
#include "program/collective.h"
#include "program/order.h"

namespace tessera::compiler {

/// Records the pieces that each toucher touches, and how.
class TouchNotes {
 public:
  explicit TouchNotes(Compilation& c) : c_(c), touchers_(c.program) {}

  /// Records the rest of a compute set, and completes it.
  void note(program::ComputeSetId id, const SetPieces& pieces, const CompiledSet& compiled) {
    const program::ComputeSet& set = c_.program.compute_sets()[id];
    for (const CompiledVertex& vertex : compiled.vertices) note(set, pieces, vertex);
    for (const program::VertexGroup& group : set.groups)
      for (const program::Field& field : group.fields)
        if (field.row) log_.read(control(field.row->index));
    note_filling(pieces.before);
    note_emptying(pieces.after);
    close(touchers_.of_set(id));
  }

  /// Records moves to and from staging buffers of the current compute set.
  void note_filling(const Moves& moves) {
    for (const Move& move : moves.moves) log_.read(move.from);
  }
  void note_emptying(const Moves& moves) {
    for (const Move& move : moves.moves) write(moves, move);
  }

  /// Records moves of the current copy set.
  void note(const Moves& moves) {
    for (const Move& move : moves.moves) {
      log_.read(move.from);
      write(moves, move);
    }
  }

  /// Records the rest of a copy set, and completes it.
  void note(program::CopySetId id) {
    for (const program::CopyGroup& group : c_.program.copy_sets()[id].groups)
      for (const auto& row : {group.source_offset, group.target_offset})
        if (row) log_.read(control(row->index));
    close(touchers_.of_copy(id));
  }

  void note_collective(program::CollectiveId id) {
    const program::Collective& collective = c_.program.collectives()[id];
    for (const program::Exchanged& exchanged : collective.variables) {
      if (program::reads_whole(collective.kind)) each(exchanged.whole, &TouchNotes::read);
      if (program::writes_whole(collective.kind)) each(exchanged.whole, &TouchNotes::overwrite);
      if (program::reads_part(collective.kind)) each(*exchanged.part, &TouchNotes::read);
      if (program::writes_part(collective.kind)) each(*exchanged.part, &TouchNotes::overwrite);
      if (exchanged.buffer) each(*exchanged.buffer, &TouchNotes::use);
    }
    close(touchers_.of_collective(id));
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
      else if (const auto* call = std::get_if<program::Call>(&steps[id]))
        note(id, *call);
      else if (const auto* collect = std::get_if<program::Collect>(&steps[id]);
               collect && collect->beside != program::kNoStep)
        note(id, *collect);
      else if (const auto* copy = std::get_if<program::Copy>(&steps[id]);
               copy && copy->beside != program::kNoStep)
        note(id, *copy);
      close(touchers_.of_control(id));
    }
  }

 private:
  void each(program::VariableId variable, void (TouchNotes::*touch)(PieceId)) {
    for (const PieceId piece : c_.mapped[variable])
      if (!c_.pieces[piece].box.empty()) (this->*touch)(piece);
  }
  void read(PieceId piece) { log_.read(piece); }
  void use(PieceId piece) { log_.use(piece); }
  void overwrite(PieceId piece) { log_.write(piece, c_.pieces[piece].box.elements()); }

  /// Records a call: its operands are alive while its function uses them.
  void note(program::StepId id, const program::Call& call) {
    const std::vector<FunctionSteps::Bound>& bounds = touchers_.function(call.function).bounds;
    for (uint32_t bound = 0; bound < bounds.size(); ++bound) {
      for (const FunctionSteps::Use& passed : bounds[bound].uses) {
        const program::CallOperand& operand = call.operands[passed.argument];
        for (const PieceId piece : c_.mapped[operand.variable]) {
          if (passed.reads) log_.read(piece);
          if (passed.writes) log_.write(piece, operand.box.elements());
        }
      }
      close(touchers_.of_bound(id, bound));
    }
  }

  /// Records what runs beside a collective: what the collective fills is alive from its start to its end.
  void note(program::StepId id, const program::Collect& collect) {
    const program::Collective& collective = c_.program.collectives()[collect.collective];
    program::each_filled(collective, [&](program::VariableId v) { each(v, &TouchNotes::overwrite); });
    close(touchers_.of_control(id));
    program::each_filled(collective, [&](program::VariableId v) { each(v, &TouchNotes::read); });
    close(touchers_.of_end(id));
  }

  /// Records what runs beside copies: what the copies read and fill is alive from their start to their end.
  void note(program::StepId id, const program::Copy& copy) {
    const std::vector<program::CopyGroup>& groups = c_.program.copy_sets()[copy.set].groups;
    for (const program::CopyGroup& group : groups) {
      each(group.from, &TouchNotes::read);
      each(group.to, &TouchNotes::overwrite);
    }
    close(touchers_.of_control(id));
    for (const program::CopyGroup& group : groups) {
      each(group.from, &TouchNotes::read);
      each(group.to, &TouchNotes::read);
    }
    close(touchers_.of_end(id));
  }

  void write(const Moves& moves, const Move& move) {
    const bool anywhere = move.runtime != kNoRuntimeRow && moves.runtime_rows[move.runtime].to.row;
    log_.write(move.to, anywhere ? 0 : move.to_box.elements());
  }

  void note(const program::ComputeSet& set, const SetPieces& pieces, const CompiledVertex& vertex) {
    const program::VertexGroup& group = set.groups[vertex.group];
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const FieldPiece& field = pieces.fields[vertex.first_place + f];
      if (field.box.empty()) continue;
      const program::FieldSpec& spec = group.codelet->fields[f];
      if (c_.pieces[field.piece].staging) {
        log_.use(field.piece);
        continue;
      }
      const program::WrittenBefore before = written_before(c_.program, set, vertex.group, f, vertex.index);
      if (reads(spec.access) && !spec.scratch && !before.all) log_.read(field.piece);
      // It is not known which elements of a scattered field, or of a field with a run-time row, are written.
      const bool anywhere = spec.scattered || field.moves || before.some;
      if (writes(spec.access)) log_.write(field.piece, anywhere ? 0 : field.box.elements());
    }
  }

  /// The piece of a variable with a single mapped box.
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
