#include "ops/builder.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>

#include "kernels/map/gather/codelet.h"
#include "ops/owners.h"
#include "ops/split.h"
#include "program/cycles.h"

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
    throw UsageError(
        fmt::format("tiles of '{}' exchange in pairs: a range must begin at an even tile, not at {}",
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

Operand Builder::bring(const Operand& operand, const OperandLayout& has, const OperandLayout& wants,
                       std::vector<program::StepId>& steps) const {
  if (has.has_order_of(wants)) return operand;
  const Operand brought = add(program_.variable(operand.variable).name + ".brought", Role::temporary,
                              type_of(operand), wants, purpose_of(operand));
  convert(operand, has, brought, wants, steps);
  return brought;
}

void Builder::convert(const Operand& from, const OperandLayout& has, const Operand& to,
                      const OperandLayout& wants, std::vector<program::StepId>& steps) const {
  if (has.transposed == wants.transposed) {
    steps.push_back(copy(conversion(from, has, to, wants)));
    return;
  }
  if (!has.blocks.empty() || !wants.blocks.empty())
    throw UsageError(
        "packed values cannot be converted to their transpose: plan for the layout that they have");
  const Operand source = plain(from, has);
  const Operand target = plain(to, wants);
  if (source != from) steps.push_back(copy(conversion(from, has, source, has.row_by_row())));
  transpose(source, target, steps);
  if (target != to) steps.push_back(copy(conversion(target, wants.row_by_row(), to, wants)));
}

Operand Builder::plain(const Operand& operand, const OperandLayout& layout) const {
  if (!layout.parts) return operand;
  const OperandLayout rows = layout.row_by_row();
  return temporary(program_.variable(operand.variable).name + ".rows", type_of(operand), rows.rows, rows.cols,
                   {}, purpose_of(operand));
}

void Builder::transpose(const Operand& from, const Operand& to, std::vector<program::StepId>& steps) const {
  if (to.box.empty()) return;
  if (!is_host() && !holds(to)) {
    const Operand local = temporary(program_.variable(to.variable).name + ".transposed", type_of(to),
                                    to.rows(), to.cols(), {}, purpose_of(to));
    transpose(from, local, steps);
    return send(local, to, steps);
  }
  if (scatters(to)) {
    const Operand blocks = temporary(program_.variable(to.variable).name + ".blocks", type_of(to), to.rows(),
                                     to.cols(), blocks_on_tiles(to), purpose_of(to));
    transpose(from, blocks, steps);
    return send(blocks, to, steps);
  }
  std::vector<MappedBox> owners = is_host() ? slices_of_threads(to) : mapping_of(to);
  std::ranges::stable_sort(owners, {}, &MappedBox::tile);
  std::vector<program::Box> read;
  for (const MappedBox& owned : owners) {
    const program::Box& box = owned.box;
    read.push_back({box.col, box.cols, box.row, box.rows});
  }
  steps.push_back(execute({"transpose", program::Phase::rearrange,
                           groups_of_owners(owners, kernels::transpose_codelet,
                                            {{from, std::move(read)}, {to, boxes_of(owners)}}, {})}));
}

bool Builder::scatters(const Operand& to) const {
  constexpr uint64_t kMostTransfers = 512;  // of a tile, whose exchange code takes a twentieth of its memory
  if (is_host()) return false;
  uint64_t transfers = 0;
  for (const MappedBox& owned : mapping_of(to)) transfers += owned.box.cols;
  const std::vector<MappedBox> blocks = blocks_on_tiles(to);
  const uint64_t of_block = uint64_t{blocks.front().box.rows} + blocks.front().box.cols;
  return transfers > kMostTransfers * machine_.tiles && transfers > 2 * of_block * blocks.size();
}

std::vector<MappedBox> Builder::blocks_on_tiles(const Operand& operand) const {
  const double side = std::sqrt(static_cast<double>(operand.box.elements()) / machine_.tiles);
  const auto parts = [&](uint32_t size, uint32_t most) {
    return std::clamp(static_cast<uint32_t>(std::lround(size / side)), 1U, std::min(size, most));
  };
  const uint32_t down = parts(operand.rows(), machine_.tiles);
  const uint32_t across = parts(operand.cols(), machine_.tiles / down);
  const std::vector<uint32_t> row = split_evenly(operand.rows(), down),
                              col = split_evenly(operand.cols(), across);
  std::vector<MappedBox> blocks;
  for (uint32_t i = 0; i < down; ++i)
    for (uint32_t j = 0; j < across; ++j)
      blocks.push_back({{row[i], row[i + 1] - row[i], col[j], col[j + 1] - col[j]}, i * across + j});
  return blocks;
}

std::vector<MappedBox> Builder::slices_of_threads(const Operand& operand) const {
  const uint64_t bytes = operand.box.elements() * size_of(type_of(operand));
  const auto parts =
      static_cast<uint32_t>(std::clamp<uint64_t>(bytes / program::kHostCopyPartBytes, 1, machine_.tiles));
  const std::vector<uint32_t> first = split_evenly(operand.rows(), parts);
  std::vector<MappedBox> slices;
  for (uint32_t tile = 0; tile + 1 < first.size(); ++tile)
    slices.push_back({{first[tile], first[tile + 1] - first[tile], 0, operand.cols()}, tile});
  return slices;
}

void Builder::send(const Operand& from, const Operand& to, std::vector<program::StepId>& steps) const {
  if (from == to || from.box.empty()) return;
  const std::string name = "send " + program_.variable(to.variable).name;
  steps.push_back(copy({name, {copy_of(from, to)}}));
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
    require(operands[i], program_.variable(argument.variable).name, type_of(argument), argument.rows(),
            argument.cols());
    Operand passed = operands[i];
    if (!lies_as(passed, argument) || (!is_host() && is_passed_twice(i))) {
      std::optional<Operand>& copy = (*function.copies)[i];
      if (!copy) {
        program::Variable own = program_.variable(argument.variable);
        own.name += ".passed";
        own.role = Role::temporary;
        copy = whole(program_.add(std::move(own)));
      }
      passed = *copy;
      if (program::reads(access)) before.groups.push_back(copy_of(operands[i], passed));
      if (program::writes(access)) after.groups.push_back(copy_of(passed, operands[i]));
    }
    call.operands.push_back({passed.variable, passed.box});
  }
  const program::StepId step = program_.add(program::Step{std::move(call)});
  if (before.groups.empty() && after.groups.empty()) return step;
  std::vector<program::StepId> steps;
  if (!before.groups.empty()) steps.push_back(copy(std::move(before)));
  steps.push_back(step);
  if (!after.groups.empty()) steps.push_back(copy(std::move(after)));
  return sequence(std::move(steps));
}

program::StepId Builder::execute(program::ComputeSet set) const {
  for (program::VertexGroup& group : set.groups) group.first_tile = tile(group.first_tile);
  return program_.execute(std::move(set));
}

}  // namespace tessera::ops
