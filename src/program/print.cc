#include <fmt/format.h>

#include <iterator>

#include "program/program.h"

namespace tessera::program {
namespace {

constexpr uint32_t kShown = 3;  // boxes or vertices of a list that are printed

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string print() {
    line("variables");
    for (const Variable& variable : program_.variables()) print(variable);
    for (const Function& function : program_.functions()) {
      line("function {}{}", function.name, arguments_text(function));
      nested(function.body);
    }
    line("main{}", program_.replicas() == 1 ? "" : fmt::format(" of {} replicas", program_.replicas()));
    nested(program_.main());
    return std::move(out_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_.append(2 * depth_, ' ');
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void nested(StepId step) {
    if (step == kNoStep) return;
    ++depth_;
    print(step);
    --depth_;
  }

  static std::string box_text(const Box& box) {
    return fmt::format("[{}:{}, {}:{}]", box.row, box.row_end(), box.col, box.col_end());
  }

  static std::string mapping_text(const Variable& variable) {
    if (variable.is_shared()) return "shared";
    std::string text;
    for (size_t i = 0; i < variable.mapping.size() && i < kShown; ++i)
      text += fmt::format("{}{} on tile {}", i == 0 ? "" : ", ", box_text(variable.mapping[i].box),
                          variable.mapping[i].tile);
    if (variable.mapping.size() > kShown) text += fmt::format(", … {} boxes", variable.mapping.size());
    return text;
  }

  std::string arguments_text(const Function& function) const {
    std::string text;
    for (const Argument& argument : function.arguments)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(argument.access),
                          program_.variable(argument.variable).name);
    return text.empty() ? text : "(" + text + ")";
  }

  static std::string_view role_text(Role role) {
    switch (role) {
      case Role::temporary: return "";
      case Role::input: return "input ";
      case Role::output: return "output ";
      case Role::inout: return "inout ";
      case Role::constant: return "constant ";
      case Role::state: return "state ";
      case Role::argument: return "argument ";
    }
    return "";
  }

  void print(const Variable& v) {
    ++depth_;
    const std::string purpose = v.purpose ? std::string(name_of(*v.purpose)) + ' ' : std::string();
    line("{}: {}{}{} {} × {}, {}{}", v.name, purpose, role_text(v.role), name_of(v.type), v.rows, v.cols,
         mapping_text(v), v.streaming ? ", in streaming memory" : "");
    --depth_;
  }

  void print(const VertexGroup& group) {
    line("{} on tiles {}:{}{}", group.codelet->name, group.first_tile, group.first_tile + group.tiles,
         group.per_tile == 1 ? "" : fmt::format(", {} per tile", group.per_tile));
    ++depth_;
    for (size_t f = 0; f < group.fields.size(); ++f) {
      std::string boxes;
      for (uint32_t i = 0; i < group.count() && i < kShown; ++i)
        boxes += (i == 0 ? "" : ", ") + box_text(field_box(program_, group.fields[f], i));
      line("{} = {} {}{}{}", group.codelet->fields[f].name, program_.variable(group.fields[f].variable).name,
           boxes, group.count() > kShown ? ", …" : "", shift_text(group.fields[f].row));
    }
    for (size_t p = 0; p < group.params.size(); ++p) {
      std::string values;
      const Param& param = group.params[p];
      const uint32_t shown = param.table.empty() ? 1 : std::min(kShown, group.count());
      for (uint32_t i = 0; i < shown; ++i) values += fmt::format("{}{}", i == 0 ? "" : ", ", param.at(i));
      line("{} = {}{}", group.codelet->params[p], values,
           !param.table.empty() && group.count() > kShown ? ", …" : "");
    }
    --depth_;
  }

  std::string shift_text(const std::optional<RuntimeRow>& row) const {
    return row ? fmt::format(" + {} · {} rows", program_.variable(row->index).name, row->stride)
               : std::string();
  }

  void print(const CopyGroup& group) {
    line("{} {}{}{} → {} {}{}{}", program_.variable(group.from).name, box_text(group.source.at(0)),
         shift_text(group.source_offset), group.source_rows ? " by row list" : "",
         program_.variable(group.to).name, box_text(group.target.at(0)), shift_text(group.target_offset),
         group.count > 1 ? fmt::format(", … {} boxes", group.count) : "");
  }

  void print(StepId id) {
    std::visit([this](const auto& step) { print(step); }, program_.steps().at(id));
  }

  void print(const Sequence& sequence) {
    for (StepId step : sequence.steps) print(step);
  }
  void print(const Execute& execute) {
    const ComputeSet& set = program_.compute_sets().at(execute.set);
    line("execute {} ({}{})", set.name, name_of(set.phase), set.ordered ? ", ordered" : "");
    ++depth_;
    for (const VertexGroup& group : set.groups) print(group);
    --depth_;
  }
  void print(const Copy& copy) {
    const CopySet& set = program_.copy_sets().at(copy.set);
    line("copy {}", set.name);
    ++depth_;
    for (const CopyGroup& group : set.groups) print(group);
    --depth_;
    print_beside(copy.beside);
  }
  void print_beside(StepId step) {
    if (step == kNoStep) return;
    line("beside it");
    nested(step);
  }
  void print(const Collect& collect) {
    const Collective& collective = program_.collectives().at(collect.collective);
    line("{} {} by {}{}", name_of(collective.kind), collective.name, name_of(collective.algorithm),
         collective.group == 0 ? "" : fmt::format(" in groups of {}", collective.group));
    ++depth_;
    for (const Exchanged& exchanged : collective.variables) {
      const std::string part = exchanged.part ? program_.variable(*exchanged.part).name : std::string();
      const std::string whole = program_.variable(exchanged.whole).name;
      switch (collective.kind) {
        case CollectiveKind::all_reduce: line("{}", whole); break;
        case CollectiveKind::reduce_scatter:
        case CollectiveKind::scatter: line("{} → {}", whole, part); break;
        case CollectiveKind::all_gather: line("{} → {}", part, whole); break;
      }
    }
    --depth_;
    print_beside(collect.beside);
  }
  void print(const Repeat& repeat) {
    line("repeat {} times{}", repeat.count,
         repeat.counter ? " counting " + program_.variable(*repeat.counter).name : std::string());
    nested(repeat.body);
  }
  void print(const While& loop) {
    line("while {} after", program_.variable(loop.condition).name);
    nested(loop.test);
    line("do");
    nested(loop.body);
  }
  void print(const If& branch) {
    line("if {}", program_.variable(branch.condition).name);
    nested(branch.then);
    if (branch.otherwise == kNoStep) return;
    line("else");
    nested(branch.otherwise);
  }
  void print(const Call& call) {
    std::string operands;
    for (const CallOperand& operand : call.operands)
      operands += fmt::format("{}{} {}", operands.empty() ? "" : ", ",
                              program_.variable(operand.variable).name, box_text(operand.box));
    line("call {}{}", program_.functions().at(call.function).name,
         operands.empty() ? operands : "(" + operands + ")");
  }

  const Program& program_;
  std::string out_;
  size_t depth_ = 0;
};

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::rearrange: return "rearrange";
    case Phase::compute: return "compute";
    case Phase::reduce: return "reduce";
    case Phase::exchange: return "exchange";
    case Phase::sync: return "sync";
    case Phase::control: return "control";
  }
  return "?";
}

std::string_view name_of(Access access) {
  switch (access) {
    case Access::in: return "in";
    case Access::out: return "out";
    case Access::inout: return "inout";
  }
  return "?";
}

std::string_view name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::parameter: return "parameter";
    case Purpose::gradient: return "gradient";
    case Purpose::optimizer: return "optimizer";
    case Purpose::activation: return "activation";
    case Purpose::stash: return "stash";
    case Purpose::metadata: return "metadata";
  }
  return "?";
}

std::string to_string(const Program& program) { return Printer(program).print(); }

}  // namespace tessera::program
