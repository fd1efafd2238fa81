#include "program/reachability.h"

namespace tessera::program {
namespace {

class Walk {
 public:
  explicit Walk(const Program& program) : program_(program) {
    reachability_.steps.resize(program.steps().size());
    reachability_.sets.resize(program.compute_sets().size());
    reachability_.copies.resize(program.copy_sets().size());
    reachability_.collectives.resize(program.collectives().size());
    reachability_.controls.resize(program.variables().size());
  }

  Reachability walk() {
    visit(program_.main());
    return std::move(reachability_);
  }

 private:
  void visit(StepId id) {
    if (id == kNoStep || reachability_.steps.at(id)) return;
    reachability_.steps[id] = true;
    std::visit([this](const auto& step) { inside(step); }, program_.steps()[id]);
  }

  void inside(const Sequence& s) {
    for (StepId step : s.steps) visit(step);
  }
  void inside(const Execute& e) {
    reachability_.sets.at(e.set) = true;
    for (const VertexGroup& group : program_.compute_sets()[e.set].groups)
      for (const Field& field : group.fields)
        if (field.row) control(field.row->index);
  }
  void inside(const Copy& c) {
    reachability_.copies.at(c.set) = true;
    for (const CopyGroup& group : program_.copy_sets()[c.set].groups)
      for (const auto& row : {group.source_offset, group.target_offset})
        if (row) control(row->index);
    visit(c.beside);
  }
  void inside(const Collect& c) {
    reachability_.collectives.at(c.collective) = true;
    visit(c.beside);
  }
  void inside(const Repeat& r) {
    if (r.counter) control(*r.counter);
    visit(r.body);
  }
  void inside(const While& w) {
    control(w.condition);
    visit(w.test);
    visit(w.body);
  }
  void inside(const If& branch) {
    control(branch.condition);
    visit(branch.then);
    visit(branch.otherwise);
  }
  void inside(const Call& c) { visit(program_.functions().at(c.function).body); }

  void control(VariableId id) { reachability_.controls.at(id) = true; }

  const Program& program_;
  Reachability reachability_;
};

}  // namespace

Reachability reachability_of(const Program& program) { return Walk(program).walk(); }

}  // namespace tessera::program
