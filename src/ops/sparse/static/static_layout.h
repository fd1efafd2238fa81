// The parts of a cut as variables, copies and vertices of a program: what the builders of sparse
// products on tiles share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/sparse/static/static.h"
#include "program/program.h"

namespace tessera::ops {

using Rows = std::shared_ptr<const std::vector<uint32_t>>;

/// Constants of the smallest type that holds them.
struct Indices {
  Type type;
  std::shared_ptr<const std::byte> contents;

  explicit Indices(const std::vector<uint32_t>& numbers);
};

/// Box i on tile i.
std::vector<program::MappedBox> on_tiles(const std::vector<program::Box>& boxes);

/// Copies rows[i] of one variable to row i of another, all columns.
program::CopyGroup gather_rows(program::VariableId from, program::VariableId to, uint32_t cols, Rows rows);

/// One box for each owner of a part of a variable.
struct OwnerField {
  program::VariableId variable = 0;
  std::vector<program::Box> boxes;
};

/// One vertex for each box of a mapping, on its tile. Owners lie on tiles that ascend, with gaps
/// where rows are split unevenly: a group for each run.
std::vector<program::VertexGroup> groups_of_owners(const std::vector<program::MappedBox>& owners,
                                                   const program::Codelet& codelet,
                                                   const std::vector<OwnerField>& fields,
                                                   const std::vector<program::Param>& params);

/// A cut's parts on the tiles of each part of the columns: tile_of(column part, part).
class PartLayout {
 public:
  PartLayout(const Pattern& pattern, const StaticPartition& partition, uint32_t n);

  const StaticPartition& partition() const { return partition_; }
  const StaticParts& parts() const { return parts_; }
  program::TileId tile_of(uint32_t col_part, uint32_t part) const {
    return col_part * partition_.parts() + part;
  }

  /// Rows [begin[part], begin[part + 1]) × the columns of a part of X, for every tile.
  std::vector<program::Box> boxes(const std::vector<uint32_t>& begin) const;
  /// Those of one part of the columns.
  std::vector<program::Box> slice(const std::vector<program::Box>& boxes, uint32_t col_part) const;
  /// Rows of a variable that every part of X shares, on the tiles of one part of X.
  std::vector<program::MappedBox> on_parts(const std::vector<uint32_t>& begin, uint32_t cols,
                                           uint32_t col_part, uint32_t offset = 0) const;
  /// Rows of a variable of which every part of X has its own.
  std::vector<program::MappedBox> on_all_parts(const std::vector<uint32_t>& begin, uint32_t cols) const;

  /// Where the values of the cut's own product lie.
  std::vector<program::MappedBox> value_mapping(uint32_t block_size, uint32_t tiles) const;

  /// The work lists, on the tiles of each part of the columns.
  std::vector<program::VariableId> add_lists(program::Program& program) const;
  /// The rows of X that each tile uses, and the copy that brings them.
  program::VariableId add_x_rows(program::Program& program, program::VariableId x,
                                 program::CopySet& gather) const;

 private:
  program::CopyGroup copy_bands(program::VariableId x, program::VariableId local_x) const;

  StaticPartition partition_;
  uint32_t n_;
  StaticParts parts_;
  std::vector<uint32_t> col_begin_;
};

/// The boxes of a mapping.
std::vector<program::Box> boxes_of(const std::vector<program::MappedBox>& mapping);

}  // namespace tessera::ops
