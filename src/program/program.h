// Tile programs: variables mapped to memory spaces, vertices in compute sets, copies, and control flow. A
// program determines what is computed on which tile; the compiler chooses addresses and exchanges.
#pragma once

#include <tessera/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "program/box.h"
#include "program/codelet.h"

namespace tessera::program {

using TileId = uint32_t;
using VariableId = uint32_t;
using ComputeSetId = uint32_t;
using CopySetId = uint32_t;
using CollectiveId = uint32_t;
using FunctionId = uint32_t;
using StepId = uint32_t;

/// The memory space that every tile can access, if the machine has one.
inline constexpr TileId kShared = ~TileId{0};
/// The streaming memory of a chip is the memory space kStreaming + the chip's position in its machine.
inline constexpr TileId kStreaming = TileId{1} << 31;
inline constexpr StepId kNoStep = ~StepId{0};
/// The part of steps that run on the ranks of their function's call; outside of functions, on all ranks.
inline constexpr uint32_t kEveryPart = ~uint32_t{0};

struct MappedBox {
  Box box;
  TileId tile = kShared;

  bool operator==(const MappedBox&) const = default;
};

/// Who owns the storage of a variable, and when it is alive.
enum class Role : uint8_t {
  temporary,  ///< alive between its first and last use
  input,      ///< bound by the caller, read only
  output,     ///< bound by the caller
  inout,      ///< bound by the caller, read and written
  constant,   ///< known when the program is built, such as work lists
  state,      ///< stays in its memory from one run of a session to the next
  argument,   ///< argument of a function: has no storage; each call passes a box of a variable for it
};

/// The purpose of a variable, by which memory reports count.
enum class Purpose : uint8_t {
  parameter,   ///< weights and biases, which training changes
  gradient,    ///< gradients of parameters
  optimizer,   ///< state of an optimizer for each parameter, such as a momentum
  activation,  ///< values passing through a network, and their gradients
  stash,       ///< activations kept for the backward pass
  metadata,    ///< integers that describe positions of values: work lists, indices, counters
};
inline constexpr size_t kPurposes = 6;
std::string_view name_of(Purpose purpose);

std::string_view name_of(Access access);
inline bool reads(Access access) { return access != Access::out; }
inline bool writes(Access access) { return access != Access::in; }

/// A two-dimensional array of elements. Vectors are one row.
struct Variable {
  std::string name;
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  Role role = Role::temporary;
  std::vector<MappedBox> mapping;  ///< disjoint boxes that cover the variable
  /// For a constant, or for state before the first run (null: zeros): rows · cols elements, row-major.
  std::shared_ptr<const std::byte> contents;
  std::optional<Purpose> purpose{};  ///< none: derived from type and role by purpose_of()
  /// Whether each mapped box lies in the streaming memory of its tile's chip, from and to which only copies
  /// move it, through that tile.
  bool streaming = false;

  Box whole() const { return {0, rows, 0, cols}; }
  uint64_t elements() const { return uint64_t{rows} * cols; }
  uint64_t bytes() const { return elements() * size_of(type); }
  bool is_external() const { return role == Role::input || role == Role::output || role == Role::inout; }
  bool is_argument() const { return role == Role::argument; }
  bool is_read_only() const { return role == Role::input || role == Role::constant; }
  bool is_shared() const { return mapping.size() == 1 && mapping[0].tile == kShared; }
};

/// The purpose that a variable names. Otherwise integers are metadata, constants and state are parameters,
/// and all other variables activations.
Purpose purpose_of(const Variable& variable);

/// A row known only at run time: the value of a one-element u32 variable × stride.
struct RuntimeRow {
  VariableId index = 0;
  uint32_t stride = 0;
  bool operator==(const RuntimeRow&) const = default;
};

/// One field of every vertex of a group. Boxes are clipped to the variable.
struct Field {
  VariableId variable = 0;
  BoxSeries boxes;
  std::optional<RuntimeRow> row{};  ///< added to the row of every box when the vertices run
};

/// One integer parameter of every vertex of a group: the same for all vertices, or one per vertex.
struct Param {
  int64_t value = 0;
  std::vector<int64_t> table;

  Param() = default;
  Param(int64_t same) : value(same) {}
  Param(std::vector<int64_t> each) : table(std::move(each)) {}
  int64_t at(uint32_t index) const { return table.empty() ? value : table.at(index); }
};

/// Vertices of one codelet on a range of tiles: vertex i is on tile first_tile + i / per_tile.
struct VertexGroup {
  const Codelet* codelet = nullptr;
  TileId first_tile = 0;
  uint32_t tiles = 0;
  uint32_t per_tile = 1;
  std::vector<Field> fields;
  std::vector<Param> params;

  uint32_t count() const { return tiles * per_tile; }
  TileId tile_of(uint32_t index) const { return first_tile + index / per_tile; }
};

/// Vertices that run in one superstep. If ordered, all groups have the same tiles and vertices per tile, and
/// vertex i of a group runs after vertex i of each earlier group, whose results it may read and overwrite.
struct ComputeSet {
  std::string name;
  Phase phase = Phase::compute;
  std::vector<VertexGroup> groups;
  bool ordered = false;
};

/// Copies of boxes. With source_rows, the rows of a source box are positions in that list, which gives the
/// rows of the variable (a gather).
struct CopyGroup {
  VariableId from = 0;
  VariableId to = 0;
  uint32_t count = 0;
  BoxSeries source;
  BoxSeries target;
  std::shared_ptr<const std::vector<uint32_t>> source_rows;
  std::optional<RuntimeRow> source_offset;  ///< added to the row of every source box when the copy runs
  std::optional<RuntimeRow> target_offset;
};

/// Calls visit(source, target) for copy i of a group; with source_rows, for each run of consecutive rows.
template <class Visit>
void each_copied_box(const CopyGroup& group, uint32_t i, const Visit& visit) {
  const Box source = group.source.at(i), target = group.target.at(i);
  if (!group.source_rows) return visit(source, target);
  const std::vector<uint32_t>& rows = *group.source_rows;
  for (uint64_t begin = source.row, end = begin; begin < source.row_end(); begin = end) {
    do ++end;
    while (end < source.row_end() && rows[end] == rows[end - 1] + 1);
    const auto first = static_cast<uint32_t>(begin - source.row), count = static_cast<uint32_t>(end - begin);
    visit(Box{rows[begin], count, source.col, source.cols},
          Box{target.row + first, count, target.col, target.cols});
  }
}

/// Copies of one exchange; all of them read before any writes.
struct CopySet {
  std::string name;
  std::vector<CopyGroup> groups;
};

/// An operation of all replicas of a program together. The elements of every mapped box of a variable are
/// divided, in order, into one chunk per replica. A part has room for the longest chunk; the rest of it is 0.
enum class CollectiveKind : uint8_t {
  all_reduce,      ///< `whole` becomes the sum over all replicas
  reduce_scatter,  ///< `part` becomes the replica's own chunk of the sum; `whole` is used up
  all_gather,      ///< `whole` becomes the parts of all replicas
  scatter,         ///< `part` becomes the replica's own chunk of `whole`: nothing travels
};
/// How a collective is done: by rounds between neighbours that each send one chunk, or by log₂(replicas)
/// rounds that each send all chunks.
enum class CollectiveAlgorithm : uint8_t { ring, tree };
std::string_view name_of(CollectiveKind kind);
std::string_view name_of(CollectiveAlgorithm algorithm);

/// A variable that a collective exchanges. Mapped box i of `part` and `buffer` is on the tile of box i of
/// `whole`.
struct Exchanged {
  VariableId whole = 0;
  std::optional<VariableId> part{};    ///< except for an all-reduce: the longest chunk
  std::optional<VariableId> buffer{};  ///< for sums: receives a chunk in a ring, or all chunks
};
struct Collective {
  std::string name;
  CollectiveKind kind = CollectiveKind::all_reduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  const Codelet* add = nullptr;  ///< for sums: a codelet with fields a, b and out, without parameters
  std::vector<Exchanged> variables;
  uint32_t group = 0;  ///< how many consecutive replicas exchange with each other alone; 0: all
};

struct Sequence {
  std::vector<StepId> steps;
};
struct Execute {
  ComputeSetId set = 0;
};
/// With a step `beside` it, which touches none of its variables, whole ones that it copies from or to
/// streaming memory, the copy begins before that step and is completed after it.
struct Copy {
  CopySetId set = 0;
  StepId beside = kNoStep;
};
/// With a step `beside` it, which touches none of its variables, the collective begins before that step and
/// is completed after it: data is under way while tiles do other work.
struct Collect {
  CollectiveId collective = 0;
  StepId beside = kNoStep;
};
/// The body, count times. The counter, if any, holds 0, 1, … during the body.
struct Repeat {
  uint32_t count = 0;
  StepId body = kNoStep;
  std::optional<VariableId> counter;
};
/// Runs test; while the condition is not 0 afterwards, runs body and test again.
struct While {
  StepId test = kNoStep;
  VariableId condition = 0;
  StepId body = kNoStep;
};
struct If {
  VariableId condition = 0;
  StepId then = kNoStep;
  StepId otherwise = kNoStep;
};
/// A box of a variable that a call passes.
struct CallOperand {
  VariableId variable = 0;
  Box box;
};
/// The operands are passed by address, one for each argument and of its type and shape: boxes of variables in
/// the shared space, or whole variables that lie on the same tiles as the argument.
struct Call {
  FunctionId function = 0;
  std::vector<CallOperand> operands{};
};
using Step = std::variant<Sequence, Execute, Copy, Repeat, While, If, Call, Collect>;

/// A variable with the role of an argument, and how the function uses it: `out` is written completely before
/// it is read.
struct Argument {
  VariableId variable = 0;
  Access access = Access::in;
};

/// Code that is called from several places; it and its exchange code exist once. Only its own body touches
/// its arguments.
struct Function {
  std::string name;
  StepId body = kNoStep;
  std::vector<Argument> arguments{};
};

/// A tile program. Built by add_…, then verified by verify().
class Program {
 public:
  VariableId add(Variable variable);
  ComputeSetId add(ComputeSet set);
  CopySetId add(CopySet set);
  CollectiveId add(Collective collective);
  FunctionId add(Function function);
  StepId add(Step step);

  StepId sequence(std::vector<StepId> steps) { return add(Step{Sequence{std::move(steps)}}); }
  StepId execute(ComputeSet set) { return add(Step{Execute{add(std::move(set))}}); }
  StepId copy(CopySet set) { return add(Step{Copy{add(std::move(set)), kNoStep}}); }
  StepId collect(Collective collective) { return add(Step{Collect{add(std::move(collective))}}); }
  StepId repeat(uint32_t count, StepId body, std::optional<VariableId> counter = {}) {
    return add(Step{Repeat{count, body, counter}});
  }
  void set_main(StepId step) { main_ = step; }
  /// Lets `replicas` equal parts of the machine run the program side by side, each with its own variables;
  /// the program's tiles are the tiles of one part. Only collectives pass data between replicas, and control
  /// flow must be the same in all.
  void set_replicas(uint32_t replicas) { replicas_ = replicas; }
  /// The part of compute sets, copies and calls that are added from now on. Ranks may divide the parts of a
  /// replica among themselves; in one process, parts have no effect. A call brings its operands to the ranks
  /// of its part; a call of a function without steps does nothing else.
  void set_part(uint32_t part) { part_ = part; }
  /// Has at least `parts` parts, also if no steps belong to the last of them.
  void set_parts(uint32_t parts) { parts_ = std::max(parts_, parts); }

  StepId main() const { return main_; }
  uint32_t replicas() const { return replicas_; }
  uint32_t part() const { return part_; }
  /// The part to which a step belongs; and the number of parts, at least 1.
  uint32_t part_of(StepId step) const { return parts_of_steps_.at(step); }
  uint32_t parts() const { return parts_; }
  const std::vector<Variable>& variables() const { return variables_; }
  const std::vector<ComputeSet>& compute_sets() const { return compute_sets_; }
  const std::vector<CopySet>& copy_sets() const { return copy_sets_; }
  const std::vector<Collective>& collectives() const { return collectives_; }
  const std::vector<Function>& functions() const { return functions_; }
  const std::vector<Step>& steps() const { return steps_; }

  const Variable& variable(VariableId id) const { return variables_.at(id); }
  /// The variable with that name; throws Error if there is none.
  VariableId find(std::string_view name) const;

 private:
  std::vector<Variable> variables_;
  std::vector<ComputeSet> compute_sets_;
  std::vector<CopySet> copy_sets_;
  std::vector<Collective> collectives_;
  std::vector<Function> functions_;
  std::vector<Step> steps_;
  std::vector<uint32_t> parts_of_steps_;
  StepId main_ = kNoStep;
  uint32_t replicas_ = 1;
  uint32_t part_ = kEveryPart;
  uint32_t parts_ = 1;
};

/// While it exists, steps that are added to a program belong to a part.
class PartScope {
 public:
  PartScope(Program& program, uint32_t part) : program_(program), before_(program.part()) {
    program_.set_part(part);
  }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;
  ~PartScope() { program_.set_part(before_); }

 private:
  Program& program_;
  uint32_t before_;
};

/// The field's box for one vertex, clipped to its variable.
Box field_box(const Program& program, const Field& field, uint32_t vertex);

/// Maps a whole variable to the shared space.
std::vector<MappedBox> map_shared(uint32_t rows, uint32_t cols);
/// Maps a whole variable to one tile.
std::vector<MappedBox> map_to_tile(uint32_t rows, uint32_t cols, TileId tile);
/// Maps row r to tile first + r.
std::vector<MappedBox> map_rows_to_tiles(uint32_t rows, uint32_t cols, TileId first = 0);
/// Distributes rows over the tiles in contiguous parts of nearly equal size; for a variable with fewer rows
/// than tiles, the columns of each row.
std::vector<MappedBox> map_linearly(uint32_t rows, uint32_t cols, uint32_t tiles);

/// The program as text: variables, compute sets, copies and control flow.
std::string to_string(const Program& program);

/// Proves a program sound for a machine of `tiles` tiles, with or without a shared space; throws
/// Error naming the first fault: a box outside its variable, a mapping that does not cover it, a
/// field that its codelet does not have, an element written by two vertices of a compute set or
/// written by one and read by another, a tile that does not exist, a step reached by itself, a
/// call that passes what its function cannot take.
void verify(const Program& program, uint32_t tiles, bool has_shared_space);

}  // namespace tessera::program
