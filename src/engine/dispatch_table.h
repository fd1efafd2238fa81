// Data about an executable that runs need, computed once for all runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/executable.h"

namespace tessera::engine {

/// A part of a copy set: rows of a transfer, or columns if the transfer has one row.
struct CopyPart {
  uint32_t transfer = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
};

class DispatchTable {
 public:
  explicit DispatchTable(const compiler::Executable& executable);

  /// Maximum number of threads for which a step has work: tiles of the widest compute set, or parts of a copy
  /// set.
  uint32_t most_threads() const { return most_threads_; }

  /// The constant properties of a vertex's field.
  struct Shape {
    uint32_t rows = 0;
    uint32_t cols = 0;
    Type type = Type::f32;
  };

  /// Shapes of the fields, and the parameters, of a vertex of a host.
  struct Vertex {
    uint32_t first_shape = 0;
    uint32_t first_param = 0;
    int32_t scratch = -1;  ///< position of the scratch field; -1: none
  };

  /// Vertices by their position in the compute set; empty on machines whose tiles have memories of their
  /// own, which may have millions.
  std::span<const Vertex> vertices(program::ComputeSetId set) const { return vertices_[set]; }
  const Shape* shapes(const Vertex& vertex) const { return shapes_.data() + vertex.first_shape; }
  const int64_t* params(const Vertex& vertex) const { return params_.data() + vertex.first_param; }

  /// A field that a run-time row moves.
  struct MovedField {
    uint32_t group = 0;
    uint32_t field = 0;
    compiler::RuntimeRows::End row;
  };
  std::span<const MovedField> moved_fields(program::ComputeSetId set) const { return moved_fields_[set]; }

  /// The parts, of about equal size, in which the threads of a host execute a copy set. Empty if it is too
  /// small for several threads, and on other machines.
  std::span<const CopyPart> copy_parts(program::CopySetId set) const { return copy_parts_[set]; }

 private:
  void add_vertices(const program::Program& program, const program::ComputeSet& source,
                    const compiler::CompiledSet& set, std::vector<Vertex>& vertices);
  void add_moved_fields(const program::Program& program, const program::ComputeSet& source,
                        std::vector<MovedField>& moved);
  void add_copy(const compiler::Exchange& exchange, std::vector<CopyPart>& parts);

  uint32_t most_threads_ = 1;
  std::vector<std::vector<Vertex>> vertices_;
  std::vector<std::vector<MovedField>> moved_fields_;
  std::vector<Shape> shapes_;
  std::vector<int64_t> params_;
  std::vector<std::vector<CopyPart>> copy_parts_;
};

}  // namespace tessera::engine
