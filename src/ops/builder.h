// The builder with which operations are added to a program, each on a range of tiles.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "machine/model/machine.h"
#include "ops/layout.h"
#include "ops/operand.h"
#include "program/program.h"

namespace tessera::ops {

/// An argument of a function, as its body sees it.
struct FunctionOperand {
  Operand operand;
  program::Access access = program::Access::in;
};

/// Steps that are called from several places with different operands.
struct Function {
  program::FunctionId id = 0;
  std::vector<FunctionOperand> operands;
  /// On tiles, by operand: the operand through which calls copy operands whose mapping differs from the
  /// argument's.
  std::shared_ptr<std::vector<std::optional<Operand>>> copies = {};
};

/// Adds operations to a program, on a range of a machine's tiles. An operation numbers its tiles from 0; the
/// builder translates. Program and machine must outlive it.
class Builder {
 public:
  Builder(program::Program& program, const machine::Machine& machine);
  /// A builder for the tiles [first_tile, first_tile + tiles). Throws UsageError for tiles that the machine
  /// lacks, and on a host unless the range has all tiles.
  Builder(program::Program& program, const machine::Machine& machine, program::TileId first_tile,
          uint32_t tiles);

  program::Program& program() const { return program_; }
  /// The machine restricted to the range, for planners.
  const machine::Machine& machine() const { return machine_; }
  const machine::Machine& whole_machine() const { return whole_; }
  bool is_host() const { return machine_.kind == machine::Kind::host; }
  /// The machine's number of a tile of the range; kShared stays kShared.
  program::TileId tile(program::TileId of_range) const {
    return of_range == program::kShared ? of_range : first_tile_ + of_range;
  }
  program::TileId first_tile() const { return first_tile_; }

  /// A whole variable as an operand.
  Operand whole(program::VariableId variable) const;
  /// The mapping of an operand: its boxes, on tiles of the range.
  std::vector<program::MappedBox> mapping_of(const Operand& operand) const;
  /// Whether all of an operand lies on tiles of the range.
  bool holds(const Operand& operand) const;
  program::Purpose purpose_of(const Operand& operand) const {
    return program::purpose_of(program_.variable(operand.variable));
  }
  Type type_of(const Operand& operand) const { return program_.variable(operand.variable).type; }
  const std::string& variable_name(const Operand& operand) const {
    return program_.variable(operand.variable).name;
  }
  /// Throws UsageError, with the name, if an operand has another type or shape.
  void require(const Operand& operand, std::string_view name, Type type, uint32_t rows, uint32_t cols) const;

  /// Adds a variable whose mapping numbers tiles from 0. Without a mapping: the shared space of a host; on
  /// tiles linear over the range.
  Operand add(program::Variable variable) const;
  Operand temporary(std::string name, Type type, uint32_t rows, uint32_t cols,
                    std::vector<program::MappedBox> mapping = {},
                    std::optional<program::Purpose> purpose = {}) const;
  /// A temporary of an operand's type and shape.
  Operand like(const Operand& operand, std::string name, std::vector<program::MappedBox> mapping = {},
               std::optional<program::Purpose> purpose = {}) const;
  /// A variable like an operand's, mapping and purpose included, without contents and not in streaming
  /// memory.
  Operand variable_like(const Operand& operand, std::string name, program::Role role) const;
  /// Adds a constant with row-major contents, which `contents` keeps alive.
  Operand constant(std::string name, Type type, uint32_t rows, uint32_t cols,
                   std::shared_ptr<const std::byte> contents,
                   std::vector<program::MappedBox> mapping = {}) const;
  /// Adds a variable that the caller binds on each run.
  Operand external(std::string name, program::Role role, Type type, uint32_t rows, uint32_t cols,
                   std::vector<program::MappedBox> mapping = {},
                   std::optional<program::Purpose> purpose = {}) const;

  /// Adds a variable with a role and a layout, such as state that a product reads in place.
  Operand add(std::string name, program::Role role, Type type, const OperandLayout& layout,
              std::optional<program::Purpose> purpose = {}) const;

  /// Converts an operand of one layout to another: returns it unchanged if the order of elements is the same,
  /// whatever its mapping; otherwise a temporary, with the steps that fill it.
  Operand bring(const Operand& operand, const OperandLayout& has, const OperandLayout& wants,
                std::vector<program::StepId>& steps) const;
  /// Fills an operand of one layout from an operand of another by copies, or if one of them is stored as its
  /// transpose, by vertices on the tiles of the result. Throws UsageError for packed values if one operand is
  /// transposed.
  void convert(const Operand& from, const OperandLayout& has, const Operand& to, const OperandLayout& wants,
               std::vector<program::StepId>& steps) const;
  /// The matrix of an operand in parts, row by row, in boxes on the tiles where the parts lie: a temporary,
  /// with the steps that fill it. None on a host, without parts, or if some lie on other tiles.
  std::optional<Operand> in_boxes(const Operand& operand, const OperandLayout& has,
                                  std::vector<program::StepId>& steps) const;
  /// The transpose of in_boxes().
  std::optional<Operand> transposed_in_boxes(const Operand& operand, const OperandLayout& has,
                                             std::vector<program::StepId>& steps) const;
  /// Copies one operand to another of its shape; adds nothing if they are the same.
  void send(const Operand& from, const Operand& to, std::vector<program::StepId>& steps) const;

  /// A variable that stands for an operand of calls in a function's body, by address; on tiles, for operands
  /// with the argument's mapping.
  Operand argument(std::string name, Type type, const OperandLayout& layout,
                   std::optional<program::Purpose> purpose = {}) const;
  /// Makes a body a function whose calls differ only in these arguments. The body must write an argument that
  /// is `out` completely before it reads it.
  Function function(std::string name, std::vector<FunctionOperand> operands, program::StepId body) const;
  /// Runs the function with operands of its arguments' shapes. On a host, a written operand must not overlap
  /// another one. On tiles, operands with another mapping than the argument's are copied. Throws UsageError
  /// for another number of operands, type or shape.
  program::StepId call(const Function& function, const std::vector<Operand>& operands) const;

  /// A compute set whose groups number tiles from 0.
  program::StepId execute(program::ComputeSet set) const;
  program::StepId repeat(uint32_t count, program::StepId body,
                         std::optional<program::VariableId> counter = {}) const {
    return program_.repeat(count, body, counter);
  }
  program::StepId loop_while(program::StepId test, program::VariableId condition,
                             program::StepId body) const {
    return program_.add(program::Step{program::While{test, condition, body}});
  }
  program::StepId copy(program::CopySet set) const { return program_.copy(std::move(set)); }
  /// Adds the copies to the steps, if there are any.
  void copy(program::CopySet set, std::vector<program::StepId>& steps) const {
    if (!set.groups.empty()) steps.push_back(copy(std::move(set)));
  }
  program::StepId sequence(std::vector<program::StepId> steps) const {
    return program_.sequence(std::move(steps));
  }
  /// The only step, or a sequence of several.
  program::StepId in_order(std::vector<program::StepId> steps) const {
    return steps.size() == 1 ? steps.front() : sequence(std::move(steps));
  }

 private:
  /// An operand as the matrix that its layout stores, row by row: the operand itself, or a temporary with
  /// this mapping.
  Operand plain(const Operand& operand, const OperandLayout& layout,
                std::vector<program::MappedBox> mapping) const;
  /// Whether a call can pass an operand by its address.
  bool lies_as(const Operand& operand, const Operand& argument) const;
  void transpose(const Operand& from, const Operand& to, std::vector<program::StepId>& steps) const;
  /// Each box of the result on its tile.
  void transpose_boxes(const Operand& from, const Operand& to, std::vector<program::StepId>& steps) const;
  /// Whether a transposing copy to an operand that lies row by row would bring single elements from many
  /// tiles, each by a transfer of its own.
  bool scatters(const Operand& to) const;
  /// Slices of an operand's rows for the threads of a host, for as few threads as copies of the operand take.
  std::vector<program::MappedBox> slices_of_threads(const Operand& operand) const;

  program::Program& program_;
  const machine::Machine& whole_;
  machine::Machine machine_;
  program::TileId first_tile_ = 0;
};

}  // namespace tessera::ops
