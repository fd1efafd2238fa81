// Memory of one run of an executable.
#pragma once

#include <hwy/aligned_allocator.h>
#include <tessera/error.h>

#include <span>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace tessera::engine {

/// The arenas of one run, and where the caller's arrays are.
class Memory {
 public:
  /// Arenas hold the constants of private memories from the start.
  Memory(const compiler::Executable& executable, bool allocate);

  /// Binds the caller's arrays. Throws Error where an external variable has none.
  void bind(std::span<const Binding> bindings);

  /// The elements of a place, `row_shift` rows further down.
  program::FieldView view(const compiler::Place& place, Type type, uint64_t row_shift = 0) const;

  /// Between the caller's arrays and the variables' tiles, on machines with private memories.
  void load_inputs() const;
  void store_outputs() const;

  uint32_t& control(program::VariableId variable) const;

 private:
  void copy_mapped(program::VariableId variable, bool to_tiles) const;

  const compiler::Executable& executable_;
  std::unordered_map<uint32_t, hwy::AlignedFreeUniquePtr<std::byte[]>> arenas_;
  std::vector<Binding> bound_;  ///< by VariableId
};

/// Copies elements between views of equal shape and type.
void copy_elements(const program::FieldView& from, const program::FieldView& to);

}  // namespace tessera::engine
