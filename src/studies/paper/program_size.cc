#include "studies/paper/program_size.h"

#include <algorithm>

namespace tessera::studies {
namespace {

using compiler::MemoryUse;

uint64_t edges_of(const program::Program& program) {
  uint64_t edges = 0;
  for (const program::ComputeSet& set : program.compute_sets())
    for (const program::VertexGroup& group : set.groups)
      for (const program::Field& field : group.fields)
        for (uint32_t i = 0; i < group.count(); ++i) edges += !field_box(program, field, i).empty();
  return edges;
}

uint64_t exchanges_of(const compiler::Executable& executable) {
  const auto moves = [](const compiler::Exchange& e) { return e.cost.bytes != 0; };
  uint64_t count =
      static_cast<uint64_t>(std::count_if(executable.copies.begin(), executable.copies.end(), moves));
  for (const compiler::CompiledSet& set : executable.sets) count += moves(set.before) + moves(set.after);
  return count;
}

}  // namespace

void enter_size(const compiler::Executable& executable, Result& result) {
  const program::Program& program = *executable.program;
  uint64_t vertices = 0;
  for (const program::ComputeSet& set : program.compute_sets())
    for (const program::VertexGroup& group : set.groups) vertices += group.count();
  compiler::TileMemory all;
  for (const compiler::TileMemory& tile : executable.memory.tiles) all += tile;
  const auto bytes = [&](std::initializer_list<MemoryUse> uses) {
    uint64_t sum = 0;
    for (MemoryUse use : uses) sum += all[use];
    return static_cast<double>(sum);
  };
  auto& v = result.values;
  v["variables"] = static_cast<double>(program.variables().size());
  v["compute_sets"] = static_cast<double>(program.compute_sets().size());
  v["vertices"] = static_cast<double>(vertices);
  v["edges"] = static_cast<double>(edges_of(program));
  v["exchanges"] = static_cast<double>(exchanges_of(executable));
  v["total_bytes"] = static_cast<double>(executable.memory.total_bytes);
  v["tile_bytes"] = static_cast<double>(executable.memory.max_tile_bytes);
  v["always_live_bytes"] = static_cast<double>(all.always_live());
  v["data_bytes"] = bytes(
      {MemoryUse::inputs, MemoryUse::outputs, MemoryUse::state, MemoryUse::constants, MemoryUse::work_lists});
  v["temporary_bytes"] = bytes({MemoryUse::temporaries, MemoryUse::staging_buffers});
  v["code_bytes"] = bytes(
      {MemoryUse::vertex_state, MemoryUse::vertex_code, MemoryUse::control_code, MemoryUse::exchange_code});
}

}  // namespace tessera::studies
