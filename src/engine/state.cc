#include "engine/state.h"

#include <fmt/format.h>

#include <cstring>

#include "base/memory.h"

namespace tessera::engine {
namespace {

using compiler::Place;
using compiler::Store;
using program::FieldView;
using program::Role;
using program::Variable;
using program::VariableId;

template <class T>
void copy_as(const FieldView& from, const FieldView& to) {
  const MatrixView<const T> source{from.as<const T>(), from.row_stride, from.col_stride};
  const MatrixView<T> target = to.matrix<T>();
  for (uint32_t i = 0; i < to.rows; ++i) {
    if (from.col_stride == 1 && to.col_stride == 1) {
      std::memcpy(&target(i, 0), &source(i, 0), to.cols * sizeof(T));
      continue;
    }
    for (uint32_t j = 0; j < to.cols; ++j) target(i, j) = source(i, j);
  }
}

FieldView contents_view(const Variable& variable) {
  return {const_cast<std::byte*>(variable.contents.get()),
          variable.type,
          variable.rows,
          variable.cols,
          variable.cols,
          1};
}

/// The part of a view that a mapped box covers.
FieldView part_of(const FieldView& whole, const program::Box& box) {
  FieldView part = whole;
  part.data +=
      (box.row * whole.row_stride + box.col * whole.col_stride) * static_cast<int64_t>(size_of(whole.type));
  part.rows = box.rows;
  part.cols = box.cols;
  return part;
}

}  // namespace

void copy_elements(const FieldView& from, const FieldView& to) {
  if (to.empty()) return;
  switch (size_of(to.type)) {
    case 1: return copy_as<uint8_t>(from, to);
    case 2: return copy_as<uint16_t>(from, to);
    case 4: return copy_as<uint32_t>(from, to);
    default: return copy_as<uint64_t>(from, to);
  }
}

Memory::Memory(const compiler::Executable& executable, bool allocate)
    : executable_(executable), bound_(executable.program->variables().size()) {
  if (!allocate) return;
  allocate_arenas();
  place_constants();
}

void Memory::allocate_arenas() {
  // Arenas begin on cache lines of their own, and kernels may read a vector beyond the last.
  constexpr uint64_t kSpacing = 128;
  const auto spaced = [](uint64_t bytes) { return (bytes + kSpacing - 1) / kSpacing * kSpacing + kSpacing; };
  uint64_t total = 0;
  for (const auto& [space, bytes] : executable_.arena_bytes) total += spaced(bytes);
  if (total == 0) return;
  base::require_memory(total, "memory of the program's variables");
  storage_ = base::allocate_buffer(total);
  tile_arenas_.resize(executable_.machine.tiles);
  std::byte* next = storage_.get();
  for (const auto& [space, bytes] : executable_.arena_bytes) {
    (space == program::kShared ? shared_arena_ : tile_arenas_[space]) = next;
    next += spaced(bytes);
  }
}

void Memory::place_constants() const {
  for (VariableId v = 0; v < bound_.size(); ++v) {
    const Variable& variable = executable_.program->variable(v);
    if (variable.role != Role::constant || variable.contents == nullptr) continue;
    for (size_t i = 0; i < variable.mapping.size(); ++i) {
      const Place& place = executable_.mapped[v][i];
      const program::Box& box = variable.mapping[i].box;
      if (place.store == Store::arena)
        copy_elements(part_of(contents_view(variable), box), view(place, variable.type, box.rows, box.cols));
    }
  }
}

void Memory::set_bindings(std::span<const Binding> bindings) {
  for (Binding& bound : bound_) bound = {};
  for (const Binding& binding : bindings) {
    if (binding.variable >= bound_.size() || !executable_.program->variable(binding.variable).is_external())
      throw Error(
          fmt::format("an array is bound to variable {}, which is none of the caller's", binding.variable));
    bound_[binding.variable] = binding;
  }
}

void Memory::bind_metadata(std::span<const Binding> bindings) {
  set_bindings(bindings);
  for (const Binding& binding : bindings) {
    const Variable& variable = executable_.program->variable(binding.variable);
    if (variable.role == Role::input && epsilon_of(variable.type) == 0.0) copy_mapped(binding.variable, true);
  }
}

void Memory::bind(std::span<const Binding> bindings) {
  set_bindings(bindings);
  for (VariableId v = 0; v < bound_.size(); ++v) {
    const Variable& variable = executable_.program->variable(v);
    if (variable.is_external() && variable.elements() != 0 && bound_[v].data == nullptr)
      throw Error(
          fmt::format("no array is bound to '{}' ({} × {})", variable.name, variable.rows, variable.cols));
  }
}

FieldView Memory::view(const Place& place, Type type, uint32_t rows, uint32_t cols,
                       uint64_t row_shift) const {
  FieldView view{nullptr, type, rows, cols, place.stride, 1};
  if (view.empty()) return view;
  const uint64_t element = size_of(type);
  switch (place.store) {
    case Store::arena:
      if (std::byte* base = arena(place.space))
        view.data = base + place.offset + row_shift * place.stride * element;
      break;
    case Store::contents:
      view.data = const_cast<std::byte*>(executable_.program->variable(place.space).contents.get()) +
                  place.offset + row_shift * place.stride * element;
      break;
    case Store::external: {
      const Binding& bound = bound_[place.space];
      view.row_stride = bound.row_stride;
      view.col_stride = bound.col_stride;
      if (bound.data == nullptr) break;
      const auto row = static_cast<int64_t>((place.offset >> 32) + row_shift);
      const auto col = static_cast<int64_t>(place.offset & 0xFFFFFFFFU);
      view.data = static_cast<std::byte*>(bound.data) +
                  (row * bound.row_stride + col * bound.col_stride) * static_cast<int64_t>(element);
      break;
    }
  }
  return view;
}

void Memory::copy_mapped(VariableId v, bool to_tiles) const {
  const Variable& variable = executable_.program->variable(v);
  const Binding& bound = bound_[v];
  const FieldView whole{static_cast<std::byte*>(bound.data),
                        variable.type,
                        variable.rows,
                        variable.cols,
                        bound.row_stride,
                        bound.col_stride};
  for (size_t i = 0; i < variable.mapping.size(); ++i) {
    const Place& place = executable_.mapped[v][i];
    if (place.store != Store::arena) continue;
    const program::Box& box = variable.mapping[i].box;
    const FieldView outside = part_of(whole, box);
    const FieldView inside = view(place, variable.type, box.rows, box.cols);
    if (to_tiles)
      copy_elements(outside, inside);
    else
      copy_elements(inside, outside);
  }
}

void Memory::load_inputs() const {
  for (VariableId v = 0; v < bound_.size(); ++v) {
    const Role role = executable_.program->variable(v).role;
    if (role == Role::input || role == Role::inout) copy_mapped(v, true);
  }
}

void Memory::store_outputs() const {
  for (VariableId v = 0; v < bound_.size(); ++v) {
    const Role role = executable_.program->variable(v).role;
    if (role == Role::output || role == Role::inout) copy_mapped(v, false);
  }
}

uint32_t& Memory::control(VariableId variable) const {
  return *view(executable_.mapped[variable].at(0), Type::u32, 1, 1).as<uint32_t>();
}

}  // namespace tessera::engine
