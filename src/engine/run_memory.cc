#include "engine/run_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/integer_types.h"
#include "base/memory.h"

namespace tessera::engine {
namespace {

using compiler::BoxAddress;
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

}  // namespace

FieldView part_of(const FieldView& whole, const program::Box& box) {
  FieldView part = whole;
  part.data +=
      (box.row * whole.row_stride + box.col * whole.col_stride) * static_cast<int64_t>(size_of(whole.type));
  part.rows = box.rows;
  part.cols = box.cols;
  return part;
}

void copy_elements(const FieldView& from, const FieldView& to) {
  if (to.empty()) return;
  switch (size_of(to.type)) {
    case 1: return copy_as<uint8_t>(from, to);
    case 2: return copy_as<uint16_t>(from, to);
    case 4: return copy_as<uint32_t>(from, to);
    default: return copy_as<uint64_t>(from, to);
  }
}

RunMemory::RunMemory(const compiler::Executable& executable, Contents contents, uint32_t replica,
                     std::vector<bool> here)
    : executable_(executable),
      contents_(contents),
      replica_(replica),
      here_(std::move(here)),
      bound_(executable.program->variables().size()) {
  for (VariableId v = 0; v < bound_.size(); ++v) note(v);
  if (!is_allocated()) return;
  allocate_arenas();
  place_constants();
  reset_state();
}

RunMemory::RunMemory(const compiler::Executable& executable, const RunMemory& with_state)
    : executable_(executable),
      contents_(Contents::all),
      state_arena_(with_state.shared_arena_),
      state_end_(state_end()),
      bound_(executable.program->variables().size()) {
  for (VariableId v = 0; v < bound_.size(); ++v) note(v);
  allocate_arenas();
}

/// The end of the state, which lies at the beginning of the shared arena.
uint64_t RunMemory::state_end() const {
  uint64_t end = 0;
  for (VariableId v = 0; v < executable_.program->variables().size(); ++v) {
    const Variable& variable = executable_.program->variable(v);
    if (variable.role != Role::state) continue;
    for (const BoxAddress& place : executable_.mapped[v])
      if (place.store == Store::arena) end = std::max(end, place.offset + variable.bytes());
  }
  return end;
}

void RunMemory::note(VariableId v) {
  const Variable& variable = executable_.program->variable(v);
  if (variable.role == Role::state && is_here(v)) state_.push_back(v);
  if (variable.is_argument()) passed_.resize(passed_.size() + variable.mapping.size());
  if (!variable.is_external() || variable.elements() == 0) return;
  externals_.push_back(v);
  const std::vector<BoxAddress>& places = executable_.mapped[v];
  if (std::all_of(places.begin(), places.end(),
                  [](const BoxAddress& p) { return p.store == Store::external; }))
    return;
  if (variable.role != Role::output) loaded_.push_back(v);
  if (variable.role != Role::input) stored_.push_back(v);
}

void RunMemory::allocate_arenas() {
  // Arenas begin at their own cache lines, and kernels may read a vector past the end.
  constexpr uint64_t kSpacing = 128;
  const auto spaced = [](uint64_t bytes) { return (bytes + kSpacing - 1) / kSpacing * kSpacing + kSpacing; };
  // Offsets are the same as in an arena with the state.
  assert(state_end_ == 0 || executable_.arena_bytes.size() == 1);
  const uint64_t elsewhere = state_end_ / kSpacing * kSpacing;
  uint64_t total = 0;
  for (const auto& [space, bytes] : executable_.arena_bytes) total += spaced(bytes);
  total -= std::min(total, elsewhere);
  if (total == 0) return;
  const bool is_reserved = contents_ == Contents::integers || !here_.empty();
  if (contents_ != Contents::integers)
    base::require_memory(here_.empty() ? total : bytes_here(), "memory of the program's variables");
  if (is_reserved)
    reserved_.reserve(total, contents_ != Contents::integers);  // most of it is never touched
  else
    storage_ = base::allocate_buffer(total);
  arenas_.resize(compiler::slots_of(executable_.machine));
  std::byte* next = (is_reserved ? reserved_.get() : storage_.get()) - elsewhere;
  for (const auto& [space, bytes] : executable_.arena_bytes) {
    (space == program::kShared ? shared_arena_ : arenas_[compiler::slot_of(executable_.machine, space)]) =
        next;
    next += spaced(bytes);
  }
}

/// Bytes of the shared arena that the variables in here_ take; variables may share bytes at different times.
uint64_t RunMemory::bytes_here() const {
  std::vector<std::pair<uint64_t, uint64_t>> extents;  // begins and ends
  for (VariableId v = 0; v < here_.size(); ++v)
    for (const BoxAddress& place : executable_.mapped[v])
      if (here_[v] && place.store == Store::arena)
        extents.emplace_back(place.offset, place.offset + executable_.program->variable(v).bytes());
  std::ranges::sort(extents);
  uint64_t bytes = 0, end = 0;
  for (const auto& [begins, ends] : extents) {
    bytes += std::max(end, ends) - std::max(end, begins);
    end = std::max(end, ends);
  }
  return bytes;
}

bool RunMemory::holds(const Variable& variable) const {
  return contents_ == Contents::all || (contents_ == Contents::integers && is_integer(variable.type));
}

void RunMemory::place_constants() const {
  for (VariableId v = 0; v < bound_.size(); ++v) {
    const Variable& variable = executable_.program->variable(v);
    if (variable.role == Role::constant && variable.contents != nullptr && holds(variable))
      write(v, contents_view(variable));
  }
}

void RunMemory::reset_state() const {
  for (VariableId v : state_) {
    const Variable& variable = executable_.program->variable(v);
    if (!holds(variable)) continue;
    if (variable.contents != nullptr) {
      write(v, contents_view(variable));
      continue;
    }
    for (size_t i = 0; i < variable.mapping.size(); ++i) {
      const FieldView box = mapped_view(v, i);
      if (!box.empty()) std::memset(box.data, 0, box.elements() * size_of(box.type));
    }
  }
}

void RunMemory::copy_integer_state(const RunMemory& other) const {
  for (VariableId v : state_) {
    const Variable& variable = executable_.program->variable(v);
    if (!is_integer(variable.type)) continue;
    for (size_t i = 0; i < variable.mapping.size(); ++i)
      copy_elements(other.mapped_view(v, i), mapped_view(v, i));
  }
}

FieldView RunMemory::mapped_view(VariableId v, size_t box) const {
  const Variable& variable = executable_.program->variable(v);
  return view(executable_.mapped[v][box], variable.type, variable.mapping[box].box.rows,
              variable.mapping[box].box.cols);
}

void RunMemory::read(VariableId v, const FieldView& to) const {
  const Variable& variable = executable_.program->variable(v);
  for (size_t i = 0; i < variable.mapping.size(); ++i)
    if (executable_.mapped[v][i].store == Store::arena)
      copy_elements(mapped_view(v, i), part_of(to, variable.mapping[i].box));
}

void RunMemory::write(VariableId v, const FieldView& from) const {
  const Variable& variable = executable_.program->variable(v);
  for (size_t i = 0; i < variable.mapping.size(); ++i)
    if (executable_.mapped[v][i].store == Store::arena)
      copy_elements(part_of(from, variable.mapping[i].box), mapped_view(v, i));
}

std::span<const std::byte> RunMemory::contiguous(VariableId v) const {
  const Variable& variable = executable_.program->variable(v);
  if (variable.mapping.size() != 1) return {};
  const FieldView box = mapped_view(v, 0);
  return {box.data, box.row_stride == variable.cols ? variable.bytes() : 0};
}

void check_bindings(const program::Program& program, std::span<const Binding> bindings) {
  for (const Binding& binding : bindings)
    if (binding.variable >= program.variables().size() || !program.variable(binding.variable).is_external())
      throw Error(fmt::format("an array is bound to variable {}, which is not external", binding.variable));
}

void RunMemory::set_bindings(std::span<const Binding> bindings) {
  check_bindings(*executable_.program, bindings);
  for (VariableId v : externals_) bound_[v].data = nullptr;
  for (const Binding& binding : bindings) {
    Binding& bound = bound_[binding.variable] = binding;
    if (bound.data != nullptr)
      bound.data = static_cast<std::byte*>(bound.data) +
                   int64_t{replica_} * binding.replica_stride *
                       static_cast<int64_t>(size_of(executable_.program->variable(binding.variable).type));
  }
}

void RunMemory::bind_metadata(std::span<const Binding> bindings) {
  set_bindings(bindings);
  for (const Binding& binding : bindings) {
    const Variable& variable = executable_.program->variable(binding.variable);
    if (is_allocated() && variable.role == Role::input && is_integer(variable.type))
      write(binding.variable, bound_view(binding.variable));
  }
}

void RunMemory::pass(VariableId argument, VariableId operand, const program::Box& box) {
  if (const Variable& on_tiles = executable_.program->variable(argument); !on_tiles.is_shared()) {
    for (size_t i = 0; i < on_tiles.mapping.size(); ++i) {
      if (on_tiles.mapping[i].box.empty()) continue;
      passed_[executable_.mapped[argument][i].argument_box()] = mapped_view(operand, i).data;
    }
    return;
  }
  FieldView passed = mapped_view(operand, 0);
  if (passed.data != nullptr) passed = part_of(passed, box);
  bound_[argument] = {argument, passed.data, passed.row_stride, passed.col_stride};
}

void RunMemory::bind(std::span<const Binding> bindings) {
  set_bindings(bindings);
  for (VariableId v : externals_) {
    if (bound_[v].data != nullptr) continue;
    const Variable& variable = executable_.program->variable(v);
    throw Error(
        fmt::format("no array is bound to '{}' ({} × {})", variable.name, variable.rows, variable.cols));
  }
  if (replica_ > 0) bind_apart();
}

/// Gives a replica its own copies of arrays that all replicas share and programs fill in place; the first
/// replica has the caller's.
void RunMemory::bind_apart() {
  for (VariableId v : externals_) {
    const Variable& variable = executable_.program->variable(v);
    if (variable.is_read_only() || !variable.is_shared() || bound_[v].replica_stride != 0) continue;
    base::Buffer& own = apart_[v];
    if (own == nullptr) own = base::allocate_buffer(variable.bytes());
    const FieldView shared = bound_view(v);
    bound_[v] = {v, own.get(), variable.cols};
    if (variable.role == Role::inout) copy_elements(shared, bound_view(v));
  }
}

FieldView RunMemory::view(const BoxAddress& place, Type type, uint32_t rows, uint32_t cols,
                          uint64_t row_shift) const {
  FieldView view{nullptr, type, rows, cols, place.stride, 1};
  if (view.empty()) return view;
  const uint64_t element = size_of(type);
  switch (place.store) {
    case Store::arena:
      if (std::byte* base = arena(place.space, place.offset))
        view.data = base + place.offset + row_shift * place.stride * element;
      break;
    case Store::argument:
      if (std::byte* base = passed_[place.argument_box()])
        view.data = base + place.argument_offset() + row_shift * place.stride * element;
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

FieldView RunMemory::bound_view(VariableId v) const {
  const Variable& variable = executable_.program->variable(v);
  const Binding& bound = bound_[v];
  return {static_cast<std::byte*>(bound.data),
          variable.type,
          variable.rows,
          variable.cols,
          bound.row_stride,
          bound.col_stride};
}

void RunMemory::load_inputs() const {
  for (VariableId v : loaded_) write(v, bound_view(v));
}

void RunMemory::store_outputs() const {
  for (VariableId v : stored_)
    if (replica_ == 0 || bound_[v].replica_stride != 0) read(v, bound_view(v));
}

FieldView RunMemory::line(VariableId variable, size_t box, uint64_t begin, uint64_t end) const {
  FieldView line = mapped_view(variable, box);
  if (line.data != nullptr) line.data += begin * size_of(line.type);
  line.rows = 1;
  line.cols = static_cast<uint32_t>(end - begin);
  line.row_stride = line.cols;
  return line;
}

FieldView RunMemory::box_of(VariableId variable, const program::Box& box) const {
  assert(executable_.mapped[variable].size() == 1);
  return part_of(mapped_view(variable, 0), box);
}

uint32_t& RunMemory::control(VariableId variable) const {
  return *view(executable_.mapped[variable].at(0), Type::u32, 1, 1).as<uint32_t>();
}

}  // namespace tessera::engine
