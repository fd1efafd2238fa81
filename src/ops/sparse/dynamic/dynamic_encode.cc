#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "kernels/tile/bucket/metadata.h"
#include "ops/sparse/dynamic/dynamic.h"

namespace tessera::ops {
namespace {

/// Blocks of one block row in one partition that are not yet in a bucket, or those that are.
struct RowPiece {
  uint32_t row;    ///< in the partition
  uint64_t first;  ///< block of the pattern
  uint32_t blocks;
};

/// Blocks of one partition in one bucket.
struct Group {
  uint32_t partition;
  std::vector<RowPiece> pieces;
};

struct Bucket {
  uint32_t free_blocks;
  uint32_t free_words;
  std::vector<Group> groups;
};

class Encoder {
 public:
  Encoder(const Pattern& pattern, const DynamicGrid& grid, bool transposed)
      : pattern_(pattern),
        grid_(grid),
        transposed_(transposed),
        partitions_(grid.tiling.partitions()),
        header_words_(kernels::subgroup_header_words(grid.block_size, grid.workers)),
        waiting_(partitions_),
        buckets_(partitions_,
                 {grid.tiling.bucket_blocks, grid.bucket_words - kernels::kBucketHeaderWords, {}}) {}

  DynamicEncoding encode() {
    split_rows();
    for (uint32_t distance = 0; distance < partitions_ && left_ > 0; ++distance) place_all(distance, false);
    for (uint32_t distance = 0; distance < partitions_ && left_ > 0; ++distance) place_all(distance, true);
    if (left_ > 0)
      throw Error(fmt::format(
          "{} of the pattern's {} blocks find no room in the {} buckets of {} blocks and {} words "
          "of metadata: "
          "plan for a capacity of more blocks, or for larger ones",
          left_, pattern_.blocks(), partitions_, grid_.tiling.bucket_blocks, grid_.bucket_words));
    write();
    return std::move(out_);
  }

 private:
  void split_rows() {
    left_ = pattern_.blocks();
    for (uint32_t row = 0; row < pattern_.block_rows(); ++row) {
      const uint32_t m_part = row / grid_.part_rows;
      const uint64_t end = pattern_.crow_indices[row + 1];
      for (uint64_t i = pattern_.crow_indices[row]; i < end;) {
        const uint32_t k_part = pattern_.col_indices[i] / grid_.part_cols;
        uint64_t next = i + 1;
        while (next < end && pattern_.col_indices[next] / grid_.part_cols == k_part) ++next;
        waiting_[grid_.partition(m_part, k_part)].push_back(
            {row - m_part * grid_.part_rows, i, static_cast<uint32_t>(next - i)});
        i = next;
      }
    }
  }

  /// Every partition's turn at the bucket that passes it after `distance` steps.
  void place_all(uint32_t distance, bool in_parts) {
    for (uint32_t p = 0; p < partitions_; ++p) {
      if (waiting_[p].empty()) continue;
      Bucket& bucket = buckets_[(p + distance) % partitions_];
      if (bucket.free_blocks == 0) continue;
      const uint64_t before = left_;
      place(p, bucket, in_parts);
      if (left_ == before) continue;
      out_.steps = std::max(out_.steps, distance);
      out_.moved += distance > 0 ? before - left_ : 0;
    }
  }

  void place(uint32_t partition, Bucket& bucket, bool in_parts) {
    auto group = std::find_if(bucket.groups.begin(), bucket.groups.end(),
                              [&](const Group& g) { return g.partition == partition; });
    const bool is_new = group == bucket.groups.end();
    const uint32_t header = is_new ? header_words_ : 0;
    std::vector<RowPiece> placed;
    std::vector<RowPiece> remaining;
    for (RowPiece& piece : waiting_[partition]) {
      const uint32_t words = kernels::kBucketRowWords + (placed.empty() ? header : 0);
      const uint32_t room =
          bucket.free_words <= words ? 0 : std::min(bucket.free_blocks, bucket.free_words - words);
      const uint32_t taken = room >= piece.blocks ? piece.blocks : in_parts ? room : 0;
      if (taken > 0) {
        placed.push_back({piece.row, piece.first, taken});
        bucket.free_blocks -= taken;
        bucket.free_words -= words + taken;
        left_ -= taken;
        piece.first += taken;
        piece.blocks -= taken;
      }
      if (piece.blocks > 0) remaining.push_back(piece);
    }
    waiting_[partition] = std::move(remaining);
    if (placed.empty()) return;
    if (is_new) group = bucket.groups.insert(bucket.groups.end(), {partition, {}});
    group->pieces.insert(group->pieces.end(), placed.begin(), placed.end());
  }

  void write() {
    out_.metadata.resize(uint64_t{partitions_} * grid_.bucket_words);
    out_.block_order.assign(uint64_t{partitions_} * grid_.tiling.bucket_blocks, DynamicEncoding::kNoBlock);
    std::vector<uint32_t> visits(uint64_t{partitions_} * (transposed_ ? grid_.part_cols : grid_.part_rows));
    for (uint32_t b = 0; b < partitions_; ++b) {
      const std::span words(out_.metadata.data() + uint64_t{b} * grid_.bucket_words, grid_.bucket_words);
      kernels::BucketWriter writer(words, b, grid_.block_size, grid_.workers);
      uint64_t* order = out_.block_order.data() + uint64_t{b} * grid_.tiling.bucket_blocks;
      for (const Group& group : buckets_[b].groups) {
        writer.begin_subgroup(group.partition);
        for (const RowPiece& piece : group.pieces) {
          const std::span<const uint32_t> columns = columns_of(piece, group.partition);
          writer.add_row(piece.row, columns);
          for (uint32_t i = 0; i < piece.blocks; ++i) *order++ = piece.first + i;
          const auto visit = [&](uint64_t at) { out_.roundings = std::max(out_.roundings, ++visits[at]); };
          if (transposed_)
            for (uint32_t column : columns) visit(uint64_t{group.partition} * grid_.part_cols + column);
          else
            visit(uint64_t{group.partition} * grid_.part_rows + piece.row);
        }
        writer.end_subgroup();
      }
    }
  }

  std::span<const uint32_t> columns_of(const RowPiece& piece, uint32_t partition) {
    const uint32_t first = grid_.k_part(partition) * grid_.part_cols;
    columns_.clear();
    for (uint32_t i = 0; i < piece.blocks; ++i)
      columns_.push_back(pattern_.col_indices[piece.first + i] - first);
    return columns_;
  }

  const Pattern& pattern_;
  const DynamicGrid& grid_;
  bool transposed_;  ///< a block adds to its rows of dX
  uint32_t partitions_;
  uint32_t header_words_;
  uint64_t left_ = 0;
  std::vector<std::vector<RowPiece>> waiting_;  ///< by partition
  std::vector<Bucket> buckets_;
  std::vector<uint32_t> columns_;
  DynamicEncoding out_;
};

}  // namespace

DynamicEncoding encode(const Pattern& pattern, const DynamicShape& shape, const DynamicGrid& grid) {
  if (pattern.rows != shape.m || pattern.cols != shape.k || pattern.block_size != shape.block_size)
    throw UsageError(
        fmt::format("a pattern of {} × {} in blocks of {} does not go into a product planned for {} × {} "
                    "in blocks of {}",
                    pattern.rows, pattern.cols, pattern.block_size, shape.m, shape.k, shape.block_size));
  if (pattern.blocks() > shape.capacity)
    throw UsageError(
        fmt::format("the pattern has {} blocks, {} more than the capacity of {} that was planned for",
                    pattern.blocks(), pattern.blocks() - shape.capacity, shape.capacity));
  return Encoder(pattern, grid, shape.product == ProductKind::input_gradient).encode();
}

}  // namespace tessera::ops
