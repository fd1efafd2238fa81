// Dynamic sparse products on tiled machines, as in PopSparse (Li et al. 2023, section 3.3 and appendix A.2):
// the plan depends only on the shape and the maximum number of blocks of W, and serves every pattern. See
// docs/dynamic-sparsity.md.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/product_operands.h"
#include "ops/tiles/expected.h"
#include "program/program.h"

namespace tessera::ops {

struct DynamicShape {
  uint32_t m = 0;
  uint32_t k = 0;
  uint32_t n = 0;
  uint32_t block_size = 1;
  uint64_t capacity = 0;  ///< maximum number of blocks of W
  TiledNumbers numbers;
  ProductKind product = ProductKind::forward;
};

/// A grid of m_parts × k_parts × n_parts tiles. W is divided into m_parts × k_parts partitions of equal
/// shape, each with a bucket of fixed capacity, which is distributed over the n_parts tiles of its partition
/// and copied to each of them on every call.
///
/// Gradients have the same partition. For dX, tiles have rows of dY instead of X and read blocks as their
/// transposes, and results are added over m instead of k. For dW, tiles have rows of both; buckets move
/// empty, are filled by the partitions to which their blocks belong, move back by as many steps, and are
/// added over n.
struct DynamicTiling {
  uint32_t m_parts = 1;
  uint32_t k_parts = 1;
  uint32_t n_parts = 1;
  uint32_t bucket_blocks = 0;
  uint32_t bucket_words = 0;  ///< least room for metadata

  uint32_t partitions() const { return m_parts * k_parts; }
  uint32_t tiles() const { return partitions() * n_parts; }
  bool operator==(const DynamicTiling&) const = default;
};

std::string to_string(const DynamicTiling& tiling);

/// Whether metadata can number its partitions and the sides of each, and variables the rows of its copies.
bool is_encodable(const DynamicShape& shape, const DynamicTiling& tiling);

/// All candidate partitions, those expected to fit first, and among these the expected fastest first; or the
/// one that the vendor's planner takes, if any. Non-zero parts of `forced` are fixed.
std::vector<Expected<DynamicTiling>> dynamic_tilings(const DynamicShape& shape, Planner planner,
                                                     const machine::Machine& machine,
                                                     const DynamicTiling& forced);

/// Positions of the partitions, and sizes of their buckets.
struct DynamicGrid {
  DynamicGrid(const DynamicShape& shape, const DynamicTiling& tiling, const machine::Machine& machine);

  /// Partitions are numbered in the order of the ring in which buckets move: along k, then along m. (Tiles
  /// that differ in n have the same partition: no block needs to move between them.)
  uint32_t partition(uint32_t m_part, uint32_t k_part) const { return m_part * tiling.k_parts + k_part; }
  uint32_t m_part(uint32_t partition) const { return partition / tiling.k_parts; }
  uint32_t k_part(uint32_t partition) const { return partition % tiling.k_parts; }
  /// Neighbouring tiles share their part of X.
  program::TileId tile(uint32_t m_part, uint32_t k_part, uint32_t n_part) const {
    return (n_part * tiling.k_parts + k_part) * tiling.m_parts + m_part;
  }

  DynamicTiling tiling;
  uint32_t block_size;
  uint32_t workers;
  uint32_t part_rows;               ///< block rows of a partition
  uint32_t part_cols;               ///< block columns
  std::vector<uint32_t> row_begin;  ///< first row of each part of m, and the end
  std::vector<uint32_t> x_begin;    ///< first row of X of each part of k, and the end
  std::vector<uint32_t> col_begin;  ///< first column of each part of n, and the end
  uint32_t bucket_words;            ///< room for metadata in a bucket
};

/// A pattern encoded in buckets.
struct DynamicEncoding {
  static constexpr uint64_t kNoBlock = ~uint64_t{0};

  std::vector<uint16_t> metadata;     ///< bucket by bucket
  std::vector<uint64_t> block_order;  ///< slot i of the buckets has the pattern's block block_order[i]
  uint32_t steps = 0;                 ///< number of propagation steps of a product
  uint64_t moved = 0;                 ///< number of blocks outside their own partition's bucket
  uint32_t roundings = 1;             ///< maximum number of roundings of a partial sum
};

/// Assigns the blocks of a pattern to buckets: each row of a partition to its own bucket while it fits;
/// remaining rows to the nearest bucket with room for the entire row; parts of rows to the nearest bucket
/// with any room. Distance is the number of ring steps after which a bucket passes. Throws UsageError if the
/// pattern has another shape or exceeds the capacity, and Error if it does not fit in the buckets' metadata;
/// both messages say by how many blocks.
DynamicEncoding encode(const Pattern& pattern, const DynamicShape& shape, const DynamicGrid& grid);

/// Mappings of the values (bucket by bucket, a row per block) and the metadata (a row per bucket) of W:
/// distributed over the tiles of their partition.
std::vector<program::MappedBox> bucket_value_mapping(const DynamicGrid& grid);
std::vector<program::MappedBox> bucket_metadata_mapping(const DynamicGrid& grid);

/// Adds a product to a program. Values and metadata are stored by bucket, X and Y as plain matrices; all may
/// have any mapping.
BuiltProduct build_dynamic(const Builder& builder, const DynamicShape& shape, const DynamicGrid& grid,
                           const ProductOperands& operands);

/// The exact cost of a dynamic product's program for an encoded pattern: cycles by phase equal the cycles
/// of a run, bytes are an upper bound.
compiler::Estimate estimate(const program::Program& program, program::VariableId bucket_metadata,
                            const DynamicGrid& grid, const DynamicEncoding& encoding,
                            const machine::Machine& machine);

}  // namespace tessera::ops
