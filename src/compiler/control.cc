#include <fmt/format.h>

#include <algorithm>

#include "base/integer_types.h"
#include "compiler/passes.h"

namespace tessera::compiler {
namespace {

using program::Access;
using program::Program;
using program::VariableId;

bool branches(const program::Step& step) {
  return std::holds_alternative<program::While>(step) || std::holds_alternative<program::If>(step);
}

bool has_changing_costs(const Program& program, const program::ComputeSet& set) {
  for (const program::VertexGroup& group : set.groups)
    for (size_t f = 0; f < group.fields.size(); ++f)
      if (reads_changing_metadata(program, group, f)) return true;
  return false;
}

/// Propagates unknown contents between variables, independently of the order of steps.
class KnownVariables {
 public:
  KnownVariables(const Program& program, const std::vector<VariableId>& given,
                 const std::vector<VariableId>& unknown)
      : program_(program) {
    for (const program::Variable& v : program.variables())
      known_.push_back(!v.is_external() && is_integer(v.type));
    for (VariableId v : given) known_[v] = is_integer(program.variable(v).type);
    for (VariableId v : unknown) known_[v] = false;
  }

  std::vector<bool> find() {
    do {
      changed_ = false;
      for (const program::ComputeSet& set : program_.compute_sets())
        for (const program::VertexGroup& group : set.groups) spread(group);
      for (const program::CopySet& set : program_.copy_sets())
        for (const program::CopyGroup& group : set.groups) spread(group);
      for (const program::Collective& collective : program_.collectives())
        for (const program::Exchanged& exchanged : collective.variables) spread(exchanged);
      for (const program::Step& step : program_.steps())
        if (const auto* call = std::get_if<program::Call>(&step)) spread(*call);
    } while (changed_);
    return std::move(known_);
  }

 private:
  void forget(VariableId v) {
    changed_ = changed_ || known_[v];
    known_[v] = false;
  }

  /// The output of a vertex is known if it is integer metadata computed from known metadata.
  void spread(const program::VertexGroup& group) {
    const program::Codelet& codelet = *group.codelet;
    bool known = codelet.integer_only;
    for (size_t f = 0; f < group.fields.size(); ++f)
      known = known && (!reads(codelet.fields[f].access) || known_[group.fields[f].variable]) &&
              is_known(group.fields[f].row);
    for (size_t f = 0; f < group.fields.size() && !known; ++f)
      if (writes(codelet.fields[f].access)) forget(group.fields[f].variable);
  }

  void spread(const program::CopyGroup& group) {
    if (!known_[group.from] || !is_known(group.source_offset) || !is_known(group.target_offset))
      forget(group.to);
  }

  /// Data that replicas exchange is unknown.
  void spread(const program::Exchanged& exchanged) {
    forget(exchanged.whole);
    for (const auto& beside : {exchanged.part, exchanged.buffer})
      if (beside) forget(*beside);
  }

  /// An argument is known if all operands that calls pass for it are; one that is written only if its
  /// argument is.
  void spread(const program::Call& call) {
    const std::vector<program::Argument>& arguments = program_.functions()[call.function].arguments;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!known_[call.operands[i].variable]) forget(arguments[i].variable);
      if (writes(arguments[i].access) && !known_[arguments[i].variable]) forget(call.operands[i].variable);
    }
  }

  bool is_known(const std::optional<program::RuntimeRow>& row) const { return !row || known_[row->index]; }

  const Program& program_;
  std::vector<bool> known_;
  bool changed_ = false;
};

}  // namespace

bool reads_changing_metadata(const Program& program, const program::VertexGroup& group, size_t field) {
  const program::FieldSpec& spec = group.codelet->fields[field];
  const program::Variable& variable = program.variable(group.fields[field].variable);
  return spec.costed && spec.access != Access::out && is_integer(variable.type) &&
         (variable.role != program::Role::constant || group.fields[field].row);
}

bool knows_costs(const Program& program, const program::ComputeSet& set, const std::vector<bool>& known) {
  return std::ranges::any_of(set.groups, [&](const program::VertexGroup& group) {
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const program::Field& field = group.fields[f];
      const bool is_known = known[field.variable] && (!field.row || known[field.row->index]);
      if (is_known && reads_changing_metadata(program, group, f)) return true;
    }
    return false;
  });
}

bool has_to_follow(const Executable& e, const std::vector<bool>& known) {
  if (!e.cycles_vary) return false;
  if (std::ranges::any_of(e.program->steps(), branches)) return true;
  for (program::ComputeSetId s = 0; s < e.costed_at_run.size(); ++s)
    if (e.costed_at_run[s] && knows_costs(*e.program, e.program->compute_sets()[s], known)) return true;
  return false;
}

void find_runtime_control(Executable& e) {
  e.costed_at_run.clear();
  for (const program::ComputeSet& set : e.program->compute_sets())
    e.costed_at_run.push_back(e.machine.kind == machine::Kind::tiled && has_changing_costs(*e.program, set));
  e.cycles_vary = std::ranges::any_of(e.program->steps(), branches) ||
                  std::ranges::find(e.costed_at_run, true) != e.costed_at_run.end();
  e.known_ahead = e.cycles_vary ? variables_known(*e.program, {}) : std::vector<bool>();
}

std::vector<bool> variables_known(const Program& program, const std::vector<VariableId>& given,
                                  const std::vector<VariableId>& unknown) {
  return KnownVariables(program, given, unknown).find();
}

std::string find_control(Compilation& c) {
  find_runtime_control(*c.executable);
  return fmt::format("cycles {} on integers", c.executable->cycles_vary ? "depend" : "do not depend");
}

}  // namespace tessera::compiler
