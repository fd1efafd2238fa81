#include "engine/dispatch_table.h"

#include <algorithm>

#include "program/cycles.h"

namespace tessera::engine {
namespace {

/// Bytes of a part of a copy set: copying them takes a thread several times as long as finding the part.
constexpr uint64_t kPartBytes = program::kHostCopyPartBytes;

}  // namespace

DispatchTable::DispatchTable(const compiler::Executable& e)
    : vertices_(e.sets.size()), moved_fields_(e.sets.size()), copy_parts_(e.copies.size()) {
  const bool is_host = e.machine.kind == machine::Kind::host;
  for (size_t s = 0; s < e.sets.size(); ++s) {
    most_threads_ = std::max(most_threads_, static_cast<uint32_t>(e.sets[s].tiles.size()));
    add_moved_fields(*e.program, e.program->compute_sets()[s], moved_fields_[s]);
    if (is_host) add_vertices(*e.program, e.program->compute_sets()[s], e.sets[s], vertices_[s]);
  }
  for (size_t s = 0; s < e.copies.size() && is_host; ++s) add_copy(e.copies[s], copy_parts_[s]);
}

void DispatchTable::add_vertices(const program::Program& program, const program::ComputeSet& source,
                                 const compiler::CompiledSet& set, std::vector<Vertex>& vertices) {
  vertices.reserve(set.vertices.size());
  for (const compiler::CompiledVertex& compiled : set.vertices) {
    const program::VertexGroup& group = source.groups[compiled.group];
    Vertex vertex{static_cast<uint32_t>(shapes_.size()), static_cast<uint32_t>(params_.size()), -1};
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const program::Box box = field_box(program, group.fields[f], compiled.index);
      shapes_.push_back({box.rows, box.cols, program.variable(group.fields[f].variable).type});
      if (vertex.scratch < 0 && group.codelet->fields[f].scratch) vertex.scratch = static_cast<int32_t>(f);
    }
    for (const program::Param& param : group.params) params_.push_back(param.at(compiled.index));
    vertices.push_back(vertex);
  }
}

void DispatchTable::add_moved_fields(const program::Program& program, const program::ComputeSet& source,
                                     std::vector<MovedField>& moved) {
  for (uint32_t g = 0; g < source.groups.size(); ++g)
    for (uint32_t f = 0; f < source.groups[g].fields.size(); ++f) {
      const program::Field& field = source.groups[g].fields[f];
      if (!field.row) continue;
      uint64_t lowest = 0;
      for (uint32_t i = 0; i < source.groups[g].count(); ++i)
        lowest = std::max(lowest, field_box(program, field, i).row_end());
      const auto room = static_cast<uint32_t>(program.variable(field.variable).rows - lowest);
      moved.push_back({g, f, {field.row, field.variable, room}});
    }
}

void DispatchTable::add_copy(const compiler::Exchange& exchange, std::vector<CopyPart>& parts) {
  uint64_t bytes = 0;
  for (const compiler::Transfer& t : exchange.transfers) bytes += t.bytes();
  if (bytes < 2 * kPartBytes) return;
  for (uint32_t i = 0; i < exchange.transfers.size(); ++i) {
    const compiler::Transfer& t = exchange.transfers[i];
    const uint64_t length = t.rows > 1 ? t.rows : t.cols;
    const uint64_t count = std::clamp<uint64_t>(t.bytes() / kPartBytes, 1, std::max<uint64_t>(1, length));
    for (uint64_t p = 0; p < count; ++p)
      parts.push_back(
          {i, static_cast<uint32_t>(length * p / count), static_cast<uint32_t>(length * (p + 1) / count)});
  }
  most_threads_ = std::max<uint32_t>(most_threads_,
                                     static_cast<uint32_t>(std::min<uint64_t>(bytes / kPartBytes, 1U << 16)));
}

}  // namespace tessera::engine
