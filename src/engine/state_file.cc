#include "engine/state_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/memory.h"
#include "io/safetensors.h"

namespace tessera::engine {
namespace {

using program::FieldView;
using program::Role;
using program::Variable;
using program::VariableId;
using Bytes = std::vector<std::byte>;

std::vector<VariableId> state_of(const program::Program& program) {
  std::vector<VariableId> state;
  for (VariableId id = 0; id < program.variables().size(); ++id)
    if (program.variable(id).role == Role::state) state.push_back(id);
  return state;
}

/// An array of a variable's shape, row by row.
FieldView flat_view(const Variable& v, Bytes& bytes) {
  return {bytes.data(), v.type, v.rows, v.cols, v.cols, 1};
}

Bytes room_for(const Variable& v, const std::string& path) {
  base::require_memory(v.bytes(), fmt::format("{}: '{}'", path, v.name));
  return Bytes(v.bytes());
}

std::string text_of(std::string_view dtype, const std::vector<uint64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

/// The tensor of a variable; throws Error if there is no matching one.
const io::TensorInfo& tensor_of(const Variable& v, const std::vector<io::TensorInfo>& tensors,
                                const std::string& path) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const io::TensorInfo& tensor) { return tensor.name == v.name; });
  if (found == tensors.end()) throw Error(fmt::format("{}: it lacks the state '{}'", path, v.name));
  const std::vector<uint64_t> shape = {v.rows, v.cols};
  if (found->dtype != io::dtype_of(v.type) || found->shape != shape)
    throw Error(fmt::format("{}: '{}' is {}; the program's is {}", path, v.name,
                            text_of(found->dtype, found->shape), text_of(io::dtype_of(v.type), shape)));
  return *found;
}

}  // namespace

void save_state(const program::Program& program, const RunMemory& memory, const std::string& path) {
  std::vector<io::TensorData> tensors;
  std::vector<Bytes> gathered;  // of variables in several places
  for (VariableId id : state_of(program)) {
    const Variable& v = program.variable(id);
    std::span<const std::byte> bytes = memory.contiguous(id);
    if (bytes.size() != v.bytes()) {
      gathered.push_back(room_for(v, path));
      memory.read(id, flat_view(v, gathered.back()));
      bytes = gathered.back();
    }
    tensors.push_back({v.name, io::dtype_of(v.type), {v.rows, v.cols}, bytes});
  }
  io::write_safetensors(path, tensors);
}

void load_state(const program::Program& program, const std::deque<RunMemory>& memories,
                const std::string& path) {
  const io::Source source = io::Source::open(path);
  const std::vector<io::TensorInfo> tensors = io::list_safetensors(source);
  const std::vector<VariableId> state = state_of(program);
  std::vector<Bytes> contents;  // read completely before any is written
  for (VariableId id : state) {
    const Variable& v = program.variable(id);
    const io::TensorInfo& tensor = tensor_of(v, tensors, path);
    contents.push_back(room_for(v, path));
    source.read(tensor.begin, contents.back());
  }
  if (tensors.size() != state.size())
    throw Error(fmt::format("{}: it has {} tensors; the program has {} state variables", path, tensors.size(),
                            state.size()));
  for (size_t i = 0; i < state.size(); ++i)
    for (const RunMemory& memory : memories)
      memory.write(state[i], flat_view(program.variable(state[i]), contents[i]));
}

}  // namespace tessera::engine
