// Memory of one run of an executable.
#pragma once

#include <tessera/error.h>

#include <span>
#include <vector>

#include "base/buffer.h"
#include "engine/engine.h"

namespace tessera::engine {

/// The arenas of one run, and where the caller's arrays are.
class Memory {
 public:
  /// Arenas hold the constants of private memories from the start.
  Memory(const compiler::Executable& executable, bool allocate);

  /// Binds the caller's arrays. Throws Error where an external variable has none.
  void bind(std::span<const Binding> bindings);

  /// For a dry run: binds the integer inputs among the arrays and loads them. None needs to be there.
  void bind_metadata(std::span<const Binding> bindings);

  /// The rows × cols elements of a place, `row_shift` rows further down.
  program::FieldView view(const compiler::Place& place, Type type, uint32_t rows, uint32_t cols,
                          uint64_t row_shift = 0) const;

  /// Between the caller's arrays and the variables' tiles, on machines with private memories.
  void load_inputs() const;
  void store_outputs() const;

  uint32_t& control(program::VariableId variable) const;

 private:
  void set_bindings(std::span<const Binding> bindings);
  void copy_mapped(program::VariableId variable, bool to_tiles) const;

  void allocate_arenas();
  void place_constants() const;
  std::byte* arena(program::TileId tile) const {
    return tile == program::kShared     ? shared_arena_
           : tile < tile_arenas_.size() ? tile_arenas_[tile]
                                        : nullptr;
  }

  const compiler::Executable& executable_;
  base::Buffer storage_;                 ///< all arenas
  std::vector<std::byte*> tile_arenas_;  ///< by tile; null where it has none
  std::byte* shared_arena_ = nullptr;
  std::vector<Binding> bound_;  ///< by VariableId
};

/// Copies elements between views of equal shape and type.
void copy_elements(const program::FieldView& from, const program::FieldView& to);

}  // namespace tessera::engine
