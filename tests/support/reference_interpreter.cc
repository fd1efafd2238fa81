#include "support/reference_interpreter.h"

#include <cstring>
#include <map>

#include "program/collective.h"

namespace tessera::testing {
namespace {

using program::Box;
using program::CopyGroup;
using program::FieldView;
using program::Program;
using program::StepId;
using program::VariableId;

class Interpreter {
 public:
  Interpreter(const Program& program, FlatVariables& variables) : program_(program), variables_(variables) {}

  void walk(StepId id) {
    if (id == program::kNoStep) return;
    std::visit([this](const auto& step) { run(step); }, program_.steps().at(id));
  }

 private:
  void run(const program::Sequence& s) {
    for (StepId step : s.steps) walk(step);
  }
  void run(const program::Repeat& r) {
    for (uint32_t i = 0; i < r.count; ++i) {
      if (r.counter) scalar(*r.counter) = i;
      walk(r.body);
    }
  }
  void run(const program::While& w) {
    for (walk(w.test); scalar(w.condition) != 0; walk(w.test)) walk(w.body);
  }
  void run(const program::If& branch) {
    walk(scalar(branch.condition) != 0 ? branch.then : branch.otherwise);
  }
  void run(const program::Call& c) {
    const program::Function& function = program_.functions().at(c.function);
    for (size_t i = 0; i < c.operands.size(); ++i) {
      Passed passed = origin_of(c.operands[i].variable);
      passed.row += c.operands[i].box.row;
      passed.col += c.operands[i].box.col;
      passed_[function.arguments.at(i).variable] = passed;
    }
    walk(function.body);
  }

  void run(const program::Execute& execute) {
    for (const program::VertexGroup& group : program_.compute_sets().at(execute.set).groups)
      for (uint32_t i = 0; i < group.count(); ++i) {
        std::vector<FieldView> fields;
        for (const program::Field& f : group.fields)
          fields.push_back(view(f.variable, field_box(program_, f, i), shift(f.row)));
        std::vector<int64_t> params;
        for (const program::Param& p : group.params) params.push_back(p.at(i));
        group.codelet->reference({fields, params});
      }
  }

  /// A collective of one replica: others have nothing to add.
  void run(const program::Collect& collect) {
    if (program_.replicas() != 1) throw std::logic_error("the interpreter runs one replica");
    walk(collect.beside);
    const program::Collective& collective = program_.collectives().at(collect.collective);
    for (const program::Exchanged& exchanged : collective.variables) {
      if (!exchanged.part) continue;
      const bool gathers = program::reads_part(collective.kind);
      variables_.at(gathers ? exchanged.whole : *exchanged.part) =
          variables_.at(gathers ? *exchanged.part : exchanged.whole);
    }
  }

  /// Every copy of a set reads before any writes.
  void run(const program::Copy& copy) {
    walk(copy.beside);
    struct Write {
      std::byte* to;
      std::vector<std::byte> element;
    };
    std::vector<Write> writes;
    for (const CopyGroup& group : program_.copy_sets().at(copy.set).groups) {
      const size_t size = size_of(program_.variable(group.from).type);
      const uint32_t from_shift = shift(group.source_offset);
      const uint32_t to_shift = shift(group.target_offset);
      for (uint32_t i = 0; i < group.count; ++i) {
        const Box source = group.source.at(i);
        const Box target = group.target.at(i);
        for (uint32_t r = 0; r < target.rows; ++r)
          for (uint32_t c = 0; c < target.cols; ++c) {
            const uint32_t position = source.row + r;
            const uint32_t row =
                (group.source_rows ? group.source_rows->at(position) : position) + from_shift;
            const std::byte* from = element(group.from, row, source.col + c);
            writes.push_back(
                {element(group.to, target.row + r + to_shift, target.col + c), {from, from + size}});
          }
      }
    }
    for (const Write& write : writes) std::memcpy(write.to, write.element.data(), write.element.size());
  }

  uint32_t shift(const std::optional<program::RuntimeRow>& row) {
    return row ? scalar(row->index) * row->stride : 0;
  }

  /// Where an argument begins in the variable that was passed.
  struct Passed {
    VariableId variable = 0;
    uint32_t row = 0;
    uint32_t col = 0;
  };
  Passed origin_of(VariableId id) const {
    const auto passed = passed_.find(id);
    return passed == passed_.end() ? Passed{id} : passed->second;
  }

  uint32_t& scalar(VariableId id) { return *reinterpret_cast<uint32_t*>(element(id, 0, 0)); }

  std::byte* element(VariableId named, uint32_t row, uint32_t col) {
    const Passed origin = origin_of(named);
    const VariableId id = origin.variable;
    row += origin.row;
    col += origin.col;
    const program::Variable& v = program_.variable(id);
    if (row >= v.rows || col >= v.cols) throw std::logic_error("the interpreter left '" + v.name + "'");
    return &variables_.at(id).at((uint64_t{row} * v.cols + col) * size_of(v.type));
  }

  FieldView view(VariableId id, const Box& box, uint32_t down) {
    const program::Variable& v = program_.variable(origin_of(id).variable);
    if (box.empty()) return {nullptr, v.type, box.rows, box.cols, v.cols, 1};
    element(id, box.row + down + box.rows - 1, box.col + box.cols - 1);  // throws outside
    return {element(id, box.row + down, box.col), v.type, box.rows, box.cols, v.cols, 1};
  }

  const Program& program_;
  FlatVariables& variables_;
  std::map<VariableId, Passed> passed_;
};

}  // namespace

FlatVariables flat_variables(const Program& program) {
  constexpr std::byte kUnwritten{0xA5};
  FlatVariables variables;
  for (const program::Variable& v : program.variables()) {
    const bool is_zero = v.role == program::Role::state && v.contents == nullptr;
    std::vector<std::byte>& flat = variables.emplace_back(v.bytes(), is_zero ? std::byte{0} : kUnwritten);
    if (v.contents != nullptr) std::memcpy(flat.data(), v.contents.get(), flat.size());
  }
  return variables;
}

void interpret(const Program& program, FlatVariables& variables) {
  Interpreter(program, variables).walk(program.main());
}

}  // namespace tessera::testing
