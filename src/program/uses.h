// The variables that steps touch.
#pragma once

#include <map>
#include <set>

#include "program/program.h"

namespace tessera::program {

/// Variables that something touches, and whether it writes them.
using Uses = std::map<VariableId, bool>;

/// The variables that a step touches: `own`, itself and as operands of its calls; `called`, in the functions
/// that it calls, except their operands.
struct StepUses {
  Uses own;
  Uses called;
};

/// Finds what the steps of a program touch, whose calls pass as many operands as their functions take.
class UsesOfSteps {
 public:
  explicit UsesOfSteps(const Program& program) : program_(program) {}

  StepUses of(StepId id);
  /// What a step touches in either way.
  Uses all_of(StepId id);
  /// The variables that a function touches, except its operands.
  const Uses& touched_by(FunctionId id);

 private:
  static void note(Uses& uses, VariableId v, bool writes) { uses[v] |= writes; }

  void gather(StepId id, StepUses& uses, std::set<StepId>& seen);
  void gather_inside(const Sequence& sequence, StepUses& uses, std::set<StepId>& seen);
  void gather_inside(const Execute& execute, StepUses& uses, std::set<StepId>& seen);
  void gather_inside(const Copy& copy, StepUses& uses, std::set<StepId>& seen);
  void gather_inside(const Collect& collect, StepUses& uses, std::set<StepId>& seen);
  void gather_inside(const Repeat& repeat, StepUses& uses, std::set<StepId>& seen);
  void gather_inside(const While& loop, StepUses& uses, std::set<StepId>& seen);
  void gather_inside(const If& branch, StepUses& uses, std::set<StepId>& seen);
  void gather_inside(const Call& call, StepUses& uses, std::set<StepId>& seen);

  const Program& program_;
  std::map<FunctionId, Uses> touched_;
};

}  // namespace tessera::program
