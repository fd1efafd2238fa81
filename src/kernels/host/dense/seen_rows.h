// The rows of images, with the zeros around them, from which a forward product reads what its window sees.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/window.h"
#include "kernels/host/dense/blocking.h"

namespace tessera::kernels {

/// Positions [begin, end) of a window's results: whole rows of them, or a part of one.
struct SeenBatch {
  uint32_t begin = 0;
  uint32_t end = 0;
};

/// Copies of the rows that a batch of positions sees, image by image. The terms that a row of taps sees of a
/// position are neighbours, if taps are.
class SeenRows {
 public:
  SeenRows(const Window& window, uint32_t channels)
      : window_(window),
        channels_(channels),
        skip_down_(window.kernel_height == 1 ? window.stride_down : 1),
        skip_across_(window.kernel_width == 1 ? window.stride_across : 1),
        most_cols_(std::min(window.out_width, kDenseBatch)),
        width_((most_cols_ - 1) * across() + (window.kernel_width - 1) * window.dilation_across + 1) {
    // Otherwise all positions of a micro-tile would lie in one set of the L1 cache.
    constexpr uint32_t kAliases = 1024;
    step_ = channels + (channels * across() % kAliases == 0 ? 16 : 0);
    row_step_ = width_ * step_;
    batch_rows_ = std::clamp(kSeenFloats / (down() * row_step_), 1U, std::max(1U, kDenseBatch / most_cols_));
  }

  const Window& window() const { return window_; }
  uint32_t channels() const { return channels_; }
  uint32_t width() const { return width_; }
  uint32_t step() const { return step_; }
  uint32_t row_step() const { return row_step_; }
  uint32_t skip_down() const { return skip_down_; }
  uint32_t skip_across() const { return skip_across_; }
  /// Floats from what a position of the window sees to what the next one does.
  size_t position_step() const { return size_t{across()} * step_; }

  /// The batch that begins at a position.
  SeenBatch batch(uint32_t position, uint32_t end) const {
    const uint32_t row = position / window_.out_width;
    const bool has_whole_rows = most_cols_ == window_.out_width;
    const uint32_t last = has_whole_rows ? (row + batch_rows_) * window_.out_width
                                         : std::min(position + most_cols_, (row + 1) * window_.out_width);
    return {position, std::min(end, last)};
  }

  /// The first column of a batch's results that copies are made for.
  uint32_t first_col(const SeenBatch& batch) const {
    return most_cols_ == window_.out_width ? 0 : batch.begin % window_.out_width;
  }

  /// The first copied row for a row of results, counted over all images.
  uint32_t row_of(const SeenBatch& batch, uint32_t out_row) const {
    const uint32_t first = batch.begin / window_.out_width, height = window_.out_height;
    const uint32_t images = out_row / height - first / height;
    if (images == 0) return (out_row - first) * down();
    return rows_for(height - first % height) + (images - 1) * rows_for(height) + out_row % height * down();
  }

  /// Copied rows for so many rows of one image's results.
  uint32_t rows_for(uint32_t out_rows) const { return (out_rows - 1) * down() + extent(); }

  /// Copied rows for a batch.
  uint32_t rows_of(const SeenBatch& batch) const {
    return row_of(batch, (batch.end - 1) / window_.out_width) + extent();
  }

  /// Floats for batches out of so many positions.
  size_t size(uint32_t positions) const {
    const uint32_t rows = std::min(batch_rows_, positions / window_.out_width + 2);
    const uint32_t images = (rows - 1) / window_.out_height + 2;
    return round_up((rows * down() + images * extent()) * row_step_, 16);
  }

  /// From what the first tap and channel see to a term, and how many terms from it on are neighbours.
  size_t offset(uint32_t term) const {
    const uint32_t tap = term / channels_;
    return size_t{tap / window_.kernel_width} * window_.dilation_down * row_step_ +
           size_t{tap % window_.kernel_width} * window_.dilation_across * step_ + term % channels_;
  }
  uint32_t neighbours(uint32_t term) const {
    const bool are_taps = window_.dilation_across == 1 && step_ == channels_;
    const uint32_t run = are_taps ? window_.kernel_width * channels_ : channels_;
    return run - term % run;
  }

 private:
  /// Copied rows and positions from one of the results to the next.
  uint32_t down() const { return window_.stride_down / skip_down_; }
  uint32_t across() const { return window_.stride_across / skip_across_; }
  /// Copied rows that one row of results sees.
  uint32_t extent() const { return (window_.kernel_height - 1) * window_.dilation_down + 1; }

  Window window_;
  uint32_t channels_;
  uint32_t skip_down_, skip_across_;  ///< of the images: from a row or position that is copied to the next
  uint32_t most_cols_;                ///< of results in a batch
  uint32_t width_;                    ///< positions of a copied row
  uint32_t step_, row_step_;          ///< floats between them, and between rows
  uint32_t batch_rows_;
};

}  // namespace tessera::kernels
