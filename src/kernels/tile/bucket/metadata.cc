#include "kernels/tile/bucket/metadata.h"

#include <cassert>

namespace tessera::kernels {
namespace {

constexpr uint32_t kElementHeaderWords = 9;
constexpr uint32_t kWorkerWords = 5;

/// Fixed cost of a row for a worker, in elements: about as published for wide rows.
constexpr uint32_t kRowElements = 5;

}  // namespace

uint32_t subgroup_header_words(uint32_t block_size, uint32_t workers) {
  return block_size > 1 ? kBlockHeaderWords : kElementHeaderWords + kWorkerWords * workers;
}

BucketWriter::BucketWriter(std::span<uint16_t> words, uint32_t number, uint32_t block_size, uint32_t workers)
    : words_(words),
      header_words_(subgroup_header_words(block_size, workers)),
      workers_(block_size > 1 ? 0 : workers) {
  words_[0] = static_cast<uint16_t>(number);
  words_[1] = 0;
}

void BucketWriter::begin_subgroup(uint32_t partition) {
  ++words_[1];
  begin_ = end_;
  end_ += header_words_;
  blocks_ = rows_ = 0;
  assert(end_ <= words_.size());
  words_[begin_] = static_cast<uint16_t>(partition);
}

void BucketWriter::add_row(uint32_t row, std::span<const uint32_t> columns) {
  assert(end_ + kBucketRowWords + columns.size() <= words_.size());
  words_[end_++] = static_cast<uint16_t>(row);
  words_[end_++] = static_cast<uint16_t>(columns.size());
  for (uint32_t column : columns) words_[end_++] = static_cast<uint16_t>(column);
  blocks_ += static_cast<uint32_t>(columns.size());
  ++rows_;
}

void BucketWriter::end_subgroup() {
  write_wide(begin_ + 1, blocks_);
  write_wide(begin_ + 3, end_ - begin_);
  write_wide(begin_ + 5, rows_);
  if (workers_ > 0) deal_to_workers();
}

void BucketWriter::write_wide(uint32_t at, uint32_t number) {
  words_[at] = static_cast<uint16_t>(number);
  words_[at + 1] = static_cast<uint16_t>(number >> 16);
}

void BucketWriter::deal_to_workers() {
  words_[begin_ + 7] = static_cast<uint16_t>(workers_);
  words_[begin_ + 8] = static_cast<uint16_t>(header_words_);
  const uint64_t all = blocks_ + uint64_t{kRowElements} * rows_;
  uint32_t word = begin_ + header_words_;
  uint32_t value = 0;
  uint32_t row = 0;
  for (uint32_t w = 0; w < workers_; ++w) {
    const uint32_t entry = begin_ + kElementHeaderWords + kWorkerWords * w;
    write_wide(entry, word - begin_);
    write_wide(entry + 2, value);
    const uint32_t first_row = row;
    // A row goes to the worker whose equal slice of the work contains its middle.
    while (row < rows_ &&
           (2 * (value + uint64_t{kRowElements} * row) + words_[word + 1] + kRowElements) * workers_ <
               2 * all * (w + 1)) {
      const uint32_t elements = words_[word + 1];
      value += elements;
      word += kBucketRowWords + elements;
      ++row;
    }
    words_[entry + 4] = static_cast<uint16_t>(row - first_row);
  }
}

}  // namespace tessera::kernels
