#include "ops/builder.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/blocks.h"

namespace tessera::ops {

using program::MappedBox;
using program::Role;

Builder::Builder(program::Program& program, const machine::Machine& machine)
    : program_(program), whole_(machine), machine_(machine) {}

Builder::Builder(program::Program& program, const machine::Machine& machine, program::TileId first_tile,
                 uint32_t tiles)
    : program_(program), whole_(machine), machine_(machine.part(first_tile, tiles)), first_tile_(first_tile) {
  const bool is_whole = first_tile == 0 && tiles == machine.tiles;
  if (tiles == 0 || first_tile > machine.tiles || tiles > machine.tiles - first_tile ||
      (is_host() && !is_whole))
    throw UsageError(fmt::format("an operation cannot be built on tiles {} to {} of '{}', which has {}{}",
                                 first_tile, uint64_t{first_tile} + tiles, machine.name, machine.tiles,
                                 is_host() ? "; on a host operations take all of them" : ""));
  if (machine.paired_exchange_factor != 1 && first_tile % 2 != 0)
    throw UsageError(fmt::format(
        "tiles of '{}' exchange in pairs: a range must begin at an even tile, not at {}; give each "
        "chip an even number of tiles",
        machine.name, first_tile));
}

Operand Builder::whole(program::VariableId variable) const {
  return {variable, program_.variable(variable).whole()};
}

std::vector<MappedBox> Builder::mapping_of(const Operand& operand) const {
  std::vector<MappedBox> mapping;
  for (const MappedBox& mapped : program_.variable(operand.variable).mapping) {
    program::Box box = intersection(mapped.box, operand.box);
    if (box.empty()) continue;
    box.row -= operand.box.row;
    box.col -= operand.box.col;
    const bool is_shared = mapped.tile == program::kShared;
    mapping.push_back({box, is_shared ? mapped.tile : mapped.tile - first_tile_});
  }
  return mapping;
}

bool Builder::holds(const Operand& operand) const {
  return std::ranges::all_of(mapping_of(operand),
                             [&](const MappedBox& mapped) { return mapped.tile < machine_.tiles; });
}

void Builder::require(const Operand& operand, std::string_view name, Type type, uint32_t rows,
                      uint32_t cols) const {
  const Type has = type_of(operand);
  if (has == type && operand.rows() == rows && operand.cols() == cols) return;
  throw UsageError(fmt::format("the operand {} is {} × {} of {}; the operation needs {} × {} of {}", name,
                               operand.rows(), operand.cols(), name_of(has), rows, cols, name_of(type)));
}

Operand Builder::add(program::Variable variable) const {
  if (variable.mapping.empty())
    variable.mapping = is_host() ? program::map_shared(variable.rows, variable.cols)
                                 : program::map_linearly(variable.rows, variable.cols, machine_.tiles);
  for (MappedBox& mapped : variable.mapping) mapped.tile = tile(mapped.tile);
  return whole(program_.add(std::move(variable)));
}

Operand Builder::temporary(std::string name, Type type, uint32_t rows, uint32_t cols,
                           std::vector<MappedBox> mapping, std::optional<program::Purpose> purpose) const {
  return add({std::move(name), type, rows, cols, Role::temporary, std::move(mapping), {}, purpose});
}

Operand Builder::like(const Operand& operand, std::string name, std::vector<MappedBox> mapping,
                      std::optional<program::Purpose> purpose) const {
  return temporary(std::move(name), type_of(operand), operand.rows(), operand.cols(), std::move(mapping),
                   purpose);
}

Operand Builder::variable_like(const Operand& operand, std::string name, Role role) const {
  program::Variable own = program_.variable(operand.variable);
  own.name = std::move(name);
  own.role = role;
  own.contents = nullptr;
  own.streaming = false;
  return whole(program_.add(std::move(own)));
}

Operand Builder::constant(std::string name, Type type, uint32_t rows, uint32_t cols,
                          std::shared_ptr<const std::byte> contents, std::vector<MappedBox> mapping) const {
  return add({std::move(name), type, rows, cols, Role::constant, std::move(mapping), std::move(contents)});
}

Operand Builder::external(std::string name, Role role, Type type, uint32_t rows, uint32_t cols,
                          std::vector<MappedBox> mapping, std::optional<program::Purpose> purpose) const {
  return add({std::move(name), type, rows, cols, role, std::move(mapping), {}, purpose});
}

Operand Builder::add(std::string name, Role role, Type type, const OperandLayout& layout,
                     std::optional<program::Purpose> purpose) const {
  return add({std::move(name), type, layout.rows, layout.cols, role, layout.mapping, {}, purpose});
}

void Builder::send(const Operand& from, const Operand& to, std::vector<program::StepId>& steps) const {
  if (from == to || from.box.empty()) return;
  const std::string name = "send " + variable_name(to);
  program::CopySet to_blocks{name + " in blocks", {}};
  const Operand read = read_by_blocks(*this, from, to, mapping_of(to), to_blocks);
  copy(std::move(to_blocks), steps);
  steps.push_back(copy({name, {copy_of(read, to)}}));
}

Operand Builder::argument(std::string name, Type type, const OperandLayout& layout,
                          std::optional<program::Purpose> purpose) const {
  return add(std::move(name), Role::argument, type, layout, purpose);
}

Function Builder::function(std::string name, std::vector<FunctionOperand> operands,
                           program::StepId body) const {
  program::Function function{std::move(name), body, {}};
  for (const FunctionOperand& operand : operands)
    function.arguments.push_back({operand.operand.variable, operand.access});
  auto copies = std::make_shared<std::vector<std::optional<Operand>>>(operands.size());
  return {program_.add(std::move(function)), std::move(operands), std::move(copies)};
}

bool Builder::lies_as(const Operand& operand, const Operand& argument) const {
  if (is_host()) return true;
  const program::Variable& has = program_.variable(operand.variable);
  return operand.box == has.whole() && has.mapping == program_.variable(argument.variable).mapping;
}

program::StepId Builder::call(const Function& function, const std::vector<Operand>& operands) const {
  const std::string name = program_.functions()[function.id].name;
  if (operands.size() != function.operands.size())
    throw UsageError(fmt::format("function '{}' takes {} operands, not {}", name, function.operands.size(),
                                 operands.size()));
  program::Call call{function.id, {}};
  program::CopySet before{"pass to " + name, {}};
  program::CopySet after{"return from " + name, {}};
  // Within the function both names would mean the same elements.
  const auto is_passed_twice = [&](size_t i) {
    for (size_t j = 0; j < operands.size(); ++j)
      if (j != i && operands[j].variable == operands[i].variable &&
          (program::writes(function.operands[i].access) || program::writes(function.operands[j].access)))
        return true;
    return false;
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto& [argument, access] = function.operands[i];
    require(operands[i], variable_name(argument), type_of(argument), argument.rows(), argument.cols());
    Operand passed = operands[i];
    if (!lies_as(passed, argument) || (!is_host() && is_passed_twice(i))) {
      std::optional<Operand>& copy = (*function.copies)[i];
      if (!copy) copy = variable_like(argument, variable_name(argument) + ".passed", Role::temporary);
      passed = *copy;
      if (program::reads(access)) before.groups.push_back(copy_of(operands[i], passed));
      if (program::writes(access)) after.groups.push_back(copy_of(passed, operands[i]));
    }
    call.operands.push_back({passed.variable, passed.box});
  }
  const program::StepId step = program_.add(program::Step{std::move(call)});
  if (before.groups.empty() && after.groups.empty()) return step;
  std::vector<program::StepId> steps;
  copy(std::move(before), steps);
  steps.push_back(step);
  copy(std::move(after), steps);
  return sequence(std::move(steps));
}

program::StepId Builder::execute(program::ComputeSet set) const {
  for (program::VertexGroup& group : set.groups) group.first_tile = tile(group.first_tile);
  return program_.execute(std::move(set));
}

}  // namespace tessera::ops
