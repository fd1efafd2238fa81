// The parts of a partition as variables, copies and vertices of a program: shared by the builders of sparse
// products on tiles.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/builder.h"
#include "ops/owners.h"
#include "ops/sparse/static/static.h"
#include "program/program.h"

namespace tessera::ops {

/// Indices as constants of the smallest suitable type.
struct Indices {
  Type type;
  std::shared_ptr<const std::byte> contents;

  explicit Indices(const std::vector<uint32_t>& numbers);
};

/// A partition's parts on the tiles of each column part: tile_of(column part, part).
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
  /// The boxes of one column part.
  std::vector<program::Box> slice(const std::vector<program::Box>& boxes, uint32_t col_part) const;
  /// Mapping of the rows of a variable shared by all parts of X, to the tiles of one part of X.
  std::vector<program::MappedBox> on_parts(const std::vector<uint32_t>& begin, uint32_t cols,
                                           uint32_t col_part, uint32_t offset = 0) const;
  /// Mapping of the rows of a variable with separate copies for each part of X.
  std::vector<program::MappedBox> on_all_parts(const std::vector<uint32_t>& begin, uint32_t cols) const;

  /// Mapping of the values of the partition's own product.
  std::vector<program::MappedBox> value_mapping(uint32_t block_size, uint32_t tiles) const;

  /// Adds work lists as constants, on the tiles of each part of the columns.
  std::vector<program::VariableId> add_lists(const Builder& builder, const std::vector<uint32_t>& lists,
                                             const std::vector<uint32_t>& begin) const;
  /// A temporary for the rows of X that each tile uses; adds their copies to `gather`.
  program::VariableId add_x_rows(const Builder& builder, const Operand& x, program::CopySet& gather) const;
  /// A temporary for rows of an operand, of which each tile has the rows of its part.
  Operand add_rows(const Builder& builder, const Operand& from, const std::vector<uint32_t>& rows,
                   const std::vector<uint32_t>& begin) const;

 private:
  program::CopyGroup copy_bands(const Operand& x, const Operand& local_x) const;

  StaticPartition partition_;
  uint32_t n_;
  StaticParts parts_;
  std::vector<uint32_t> col_begin_;
};

}  // namespace tessera::ops
