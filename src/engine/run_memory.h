// Memory of the runs of an executable.
#pragma once

#include <tessera/error.h>

#include <map>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/reserved_memory.h"
#include "compiler/executable.h"
#include "engine/run.h"

namespace tessera::engine {

/// The variables whose contents a memory holds.
enum class Contents {
  none,      ///< for dry runs that read no memory
  integers,  ///< for other dry runs
  all,
};

/// Throws Error for a binding of a variable that callers do not bind.
void check_bindings(const program::Program& program, std::span<const Binding> bindings);

/// The arenas of one run at a time, and the positions of the caller's arrays.
class RunMemory {
 public:
  /// Arenas are initialised with the constants of private memories and the initial contents of state. Of a
  /// host's shared space only the variables in `here` are used, by VariableId; if it is empty, all are.
  RunMemory(const compiler::Executable& executable, Contents contents, uint32_t replica = 0,
            std::vector<bool> here = {});
  /// A memory of an executable for a host that shares the state in another memory, for runs side by side,
  /// which must not write the state. The other memory must outlive this one.
  RunMemory(const compiler::Executable& executable, const RunMemory& with_state);

  bool is_allocated() const { return contents_ != Contents::none; }

  /// Binds the caller's arrays. Throws Error if an external variable is not bound.
  void bind(std::span<const Binding> bindings);

  /// Binds an argument of a function to a box of a variable, while a call runs.
  void pass(program::VariableId argument, program::VariableId operand, const program::Box& box);

  /// For a dry run: binds the integer inputs among the arrays, none of which is required, and loads them.
  void bind_metadata(std::span<const Binding> bindings);

  /// The rows × cols elements of a place, `row_shift` rows further down.
  program::FieldView view(const compiler::BoxAddress& place, Type type, uint32_t rows, uint32_t cols,
                          uint64_t row_shift = 0) const;

  /// Copies between the caller's arrays and the variables' tiles, on machines with private memories.
  void load_inputs() const;
  void store_outputs() const;

  /// Resets state to its initial contents.
  void reset_state() const;
  /// Copies integer state from another memory of the same executable, so that a dry run knows it.
  void copy_integer_state(const RunMemory& other) const;

  /// Copies the elements of a variable in arenas to and from an array of its shape.
  void read(program::VariableId variable, const program::FieldView& to) const;
  void write(program::VariableId variable, const program::FieldView& from) const;
  /// The bytes of a variable, if it is one contiguous box; otherwise empty.
  std::span<const std::byte> contiguous(program::VariableId variable) const;

  uint32_t& control(program::VariableId variable) const;

  /// A box of a variable that is one mapped box.
  program::FieldView box_of(program::VariableId variable, const program::Box& box) const;

  /// Elements [begin, end) of a mapped box in a tile's arena, as one row.
  program::FieldView line(program::VariableId variable, size_t box, uint64_t begin, uint64_t end) const;

 private:
  void note(program::VariableId variable);
  void set_bindings(std::span<const Binding> bindings);
  void bind_apart();
  program::FieldView bound_view(program::VariableId variable) const;

  void allocate_arenas();
  void place_constants() const;
  bool holds(const program::Variable& variable) const;
  program::FieldView mapped_view(program::VariableId variable, size_t box) const;
  uint64_t state_end() const;
  bool is_here(program::VariableId variable) const { return here_.empty() || here_[variable]; }
  uint64_t bytes_here() const;
  std::byte* arena(program::TileId space, uint64_t offset) const {
    if (space == program::kShared) return offset < state_end_ ? state_arena_ : shared_arena_;
    return arenas_.empty() ? nullptr : arenas_[compiler::slot_of(executable_.machine, space)];
  }

  const compiler::Executable& executable_;
  Contents contents_;
  uint32_t replica_ = 0;
  std::vector<bool> here_;
  std::vector<program::VariableId> state_;      ///< that is used here
  std::vector<program::VariableId> externals_;  ///< external variables that have elements
  std::vector<program::VariableId> loaded_;     ///< externals with a copy in arenas that the program reads
  std::vector<program::VariableId> stored_;     ///< externals with a copy in arenas that the program writes
  base::Buffer storage_;                        ///< all arenas
  base::ReservedMemory reserved_;               ///< all arenas, instead, if most of them is not used
  std::vector<std::byte*> arenas_;              ///< by space; null if it has none
  std::byte* shared_arena_ = nullptr;
  std::byte* state_arena_ = nullptr;  ///< arena of the memory that has the state of the shared space
  uint64_t state_end_ = 0;            ///< end of the state in another memory's arena; 0: the state is in this
                                      ///< memory
  std::vector<Binding> bound_;        ///< by VariableId
  std::map<program::VariableId, base::Buffer>
      apart_;                       ///< instead of arrays that only the first replica fills
  std::vector<std::byte*> passed_;  ///< by box of arguments on tiles
};

/// The part of a view that a box covers.
program::FieldView part_of(const program::FieldView& whole, const program::Box& box);

/// Copies elements between views of equal shape and type.
void copy_elements(const program::FieldView& from, const program::FieldView& to);

}  // namespace tessera::engine
