// The rows of images, with the zeros around them, from which a forward product with a window reads X.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/window.h"
#include "kernels/host/dense/blocking.h"

namespace tessera::kernels {

/// Positions [begin, end) of a window: whole rows of positions, or a part of one.
struct SeenBatch {
  uint32_t begin = 0;
  uint32_t end = 0;
};

/// Layout of copies of the images' rows under a batch of positions, image by image. The terms of a position
/// under a row of taps are contiguous if the taps are neighbours.
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
  /// Distance of the elements under consecutive positions of the window, in floats.
  size_t position_step() const { return size_t{across()} * step_; }

  /// The batch that begins at a position.
  SeenBatch batch(uint32_t position, uint32_t end) const {
    const uint32_t row = position / window_.out_width;
    const bool has_whole_rows = most_cols_ == window_.out_width;
    const uint32_t last = has_whole_rows ? (row + batch_rows_) * window_.out_width
                                         : std::min(position + most_cols_, (row + 1) * window_.out_width);
    return {position, std::min(end, last)};
  }

  /// The first column of positions for which a batch has copies.
  uint32_t first_col(const SeenBatch& batch) const {
    return most_cols_ == window_.out_width ? 0 : batch.begin % window_.out_width;
  }

  /// The first copied row for a row of positions, counted over all images.
  uint32_t row_of(const SeenBatch& batch, uint32_t out_row) const {
    const uint32_t first = batch.begin / window_.out_width, height = window_.out_height;
    const uint32_t images = out_row / height - first / height;
    if (images == 0) return (out_row - first) * down();
    return rows_for(height - first % height) + (images - 1) * rows_for(height) + out_row % height * down();
  }

  /// Number of copied rows for `out_rows` rows of positions of one image.
  uint32_t rows_for(uint32_t out_rows) const { return (out_rows - 1) * down() + extent(); }

  /// Number of copied rows for a batch.
  uint32_t rows_of(const SeenBatch& batch) const {
    return row_of(batch, (batch.end - 1) / window_.out_width) + extent();
  }

  /// Number of floats for batches, if there are `positions` positions in total.
  size_t size(uint32_t positions) const {
    const uint32_t rows = std::min(batch_rows_, positions / window_.out_width + 2);
    const uint32_t images = (rows - 1) / window_.out_height + 2;
    return round_up((rows * down() + images * extent()) * row_step_, 16);
  }

  /// Offset of a term from the element under the first tap and channel, and the number of contiguous terms
  /// from it on.
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
  /// Distance of consecutive window positions, in copied rows and in copied positions of a row.
  uint32_t down() const { return window_.stride_down / skip_down_; }
  uint32_t across() const { return window_.stride_across / skip_across_; }
  /// Number of copied rows under one row of positions.
  uint32_t extent() const { return (window_.kernel_height - 1) * window_.dilation_down + 1; }

  Window window_;
  uint32_t channels_;
  uint32_t skip_down_, skip_across_;  ///< distance in the images of rows and positions that are copied
  uint32_t most_cols_;                ///< maximum number of columns of positions of a batch
  uint32_t width_;                    ///< positions of a copied row
  uint32_t step_, row_step_;          ///< distance of these positions, and of rows, in floats
  uint32_t batch_rows_;
};

}  // namespace tessera::kernels
