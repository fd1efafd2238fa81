// Metadata of a bucket's values in a dynamic sparse product: u16 words in PopLibs' formats.
//
// A matrix is divided into partitions of equal shape. Each partition has a bucket, which holds blocks of its
// own partition and, if other buckets overflow, of theirs. The blocks of one partition in a bucket form a
// subgroup.
//
//   bucket     its number, its subgroups, then these one after another
//   subgroup   header, for single elements an entry for each worker, then its rows
//   row        number of the block row in the partition, blocks, the block column of each
#pragma once

#include <cstdint>
#include <span>

#include "program/codelet.h"

namespace tessera::kernels {

/// Words of a bucket's metadata, excluding its subgroups.
inline constexpr uint32_t kBucketHeaderWords = 2;
/// Words of a row, excluding its block columns.
inline constexpr uint32_t kBucketRowWords = 2;
/// Maximum number of rows or columns of a partition, in blocks.
inline constexpr uint32_t kMostPartitionSide = 0xFFFF;
/// Maximum number of partitions.
inline constexpr uint32_t kMostPartitions = 0xFFFF;

/// Words of a subgroup of blocks, excluding its rows.
inline constexpr uint32_t kBlockHeaderWords = 7;
/// Words of any subgroup, excluding its rows: 7 for blocks; for single elements 9 plus 5 per worker.
uint32_t subgroup_header_words(uint32_t block_size, uint32_t workers);

/// One subgroup of a bucket, in place.
class Subgroup {
 public:
  /// The rows of one worker.
  struct WorkerRows {
    uint32_t first_word = 0;   ///< first word of their entries, relative to the subgroup's first word
    uint32_t first_value = 0;  ///< relative to the subgroup's first value
    uint32_t rows = 0;
  };

  explicit Subgroup(const uint16_t* words) : words_(words) {}

  uint32_t partition() const { return words_[0]; }
  uint32_t blocks() const { return wide(1); }
  uint32_t words() const { return wide(3); }
  uint32_t rows() const { return wide(5); }
  // The following are for single elements.
  uint32_t workers() const { return words_[7]; }
  WorkerRows worker(uint32_t i) const {
    const uint32_t at = 9 + 5 * i;
    return {wide(at), wide(at + 2), words_[at + 4]};
  }

  /// Calls visit(block row, number of the row's first value in the subgroup, block columns) for each row.
  template <class Visit>
  void each_row(uint32_t block_size, const Visit& visit) const {
    const uint16_t* at = words_ + (block_size > 1 ? kBlockHeaderWords : words_[8]);
    uint32_t value = 0;
    for (uint32_t r = 0; r < rows(); ++r) {
      const uint32_t blocks = at[1];
      visit(uint32_t{at[0]}, value, std::span(at + kBucketRowWords, blocks));
      value += blocks;
      at += kBucketRowWords + blocks;
    }
  }

 private:
  uint32_t wide(uint32_t at) const { return words_[at] | uint32_t{words_[at + 1]} << 16; }

  const uint16_t* words_;
};

/// A bucket's metadata, in place.
class BucketView {
 public:
  explicit BucketView(const uint16_t* words) : words_(words) {}

  uint32_t number() const { return words_[0]; }
  uint32_t subgroups() const { return words_[1]; }

  /// Calls visit(subgroup, number of its first value in the bucket) for each subgroup.
  template <class Visit>
  void each_subgroup(const Visit& visit) const {
    const uint16_t* at = words_ + kBucketHeaderWords;
    uint32_t value = 0;
    for (uint32_t s = 0; s < subgroups(); ++s) {
      const Subgroup subgroup(at);
      visit(subgroup, value);
      value += subgroup.blocks();
      at += subgroup.words();
    }
  }

 private:
  const uint16_t* words_;
};

/// Calls visit(block row, its first value in the bucket, block columns) for each row of a partition in a
/// field of metadata, which may be empty.
template <class Visit>
void each_row_of(const program::FieldView& metadata, uint32_t partition, uint32_t block_size,
                 const Visit& visit) {
  if (metadata.empty()) return;
  const BucketView bucket(metadata.as<const uint16_t>());
  bucket.each_subgroup([&](const Subgroup& subgroup, uint32_t first) {
    if (subgroup.partition() != partition) return;
    subgroup.each_row(block_size, [&](uint32_t row, uint32_t value, std::span<const uint16_t> columns) {
      visit(row, first + value, columns);
    });
  });
}

/// Writes a bucket's metadata. `words` must be large enough.
class BucketWriter {
 public:
  BucketWriter(std::span<uint16_t> words, uint32_t number, uint32_t block_size, uint32_t workers);

  /// Begins a subgroup: rows added until end_subgroup() belong to this partition.
  void begin_subgroup(uint32_t partition);
  void add_row(uint32_t row, std::span<const uint32_t> columns);
  /// Writes the subgroup's counts; rows of single elements are dealt to the workers in runs of nearly equal
  /// cost.
  void end_subgroup();

  uint32_t words_written() const { return end_; }

 private:
  void write_wide(uint32_t at, uint32_t number);
  void deal_to_workers();

  std::span<uint16_t> words_;
  uint32_t header_words_;
  uint32_t workers_;  ///< 0: blocks, which all workers share
  uint32_t begin_ = 0;
  uint32_t end_ = kBucketHeaderWords;
  uint32_t blocks_ = 0;
  uint32_t rows_ = 0;
};

}  // namespace tessera::kernels
