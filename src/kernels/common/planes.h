// Images copied so that a window sees neighbours at all of its positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/splits.h"
#include "kernels/common/window.h"

namespace tessera::kernels {

/// Planes of images: one for each channel, each column of taps, and each phase of the strides between rows. A
/// plane has a place for each position of the window, row by row, with what the taps of this column see
/// there: rows of taps see rows of the plane. Images are taken piece by piece: some rows of positions of a
/// few images, whose rows alternate if that makes them whole vectors.
class Planes {
 public:
  struct Piece {
    uint32_t image, images;  ///< the first of the images, and how many there are
    uint32_t row, rows;      ///< rows of positions
  };

  explicit Planes(const Seen& seen) : seen_(seen), w_(seen.window) {
    constexpr uint32_t kFewRows = 8;
    images_ = seen.positions / w_.positions();
    phases_ = w_.dilation_down == 1 ? std::min(w_.kernel_height, w_.stride_down) : w_.stride_down;
    behind_ = (w_.kernel_height - 1) * w_.dilation_down / w_.stride_down;
    together_ = 1;
    while (together_ < 4 && together_ * w_.out_width % kMaxLanes != 0) together_ *= 2;
    const bool is_worth_it = together_ * w_.out_width % kMaxLanes == 0 && together_ <= images_ &&
                             most_rows() >= std::min(w_.out_height, kFewRows);
    if (!is_worth_it) together_ = 1;
    bands_ = (w_.out_height + std::max(1U, most_rows()) - 1) / std::max(1U, most_rows());
    piece_rows_ = (w_.out_height + bands_ - 1) / bands_;
    // An odd number of cache lines, so that planes lie in different sets of the L1 cache.
    step_ = round_up((piece_rows_ + behind_) * pitch(), kMaxLanes) | kMaxLanes;
  }

  /// Whether pieces fit the L2 cache, without many rows that other pieces have too.
  bool fit() const {
    return w_.out_width >= kFewestCols && most_rows() >= std::clamp(2 * behind_, 1U, w_.out_height);
  }

  /// Whether pieces have whole vectors of places.
  bool are_whole() const {
    return piece_rows_ * pitch() % kMaxLanes == 0 && w_.out_height % piece_rows_ * pitch() % kMaxLanes == 0;
  }

  const Seen& seen() const { return seen_; }
  /// The number of planes, the floats from one to the next, and the floats of all planes and of a plane of
  /// zeros behind them.
  uint32_t count() const { return phases_ * w_.kernel_width * seen_.channels; }
  uint32_t step() const { return step_; }
  size_t zeros() const { return size_t{count()} * step_; }
  size_t floats() const { return zeros() + step_; }
  /// Places of a row of positions, of all images.
  uint32_t pitch() const { return together_ * w_.out_width; }
  /// Where the rows of X of each k-block begin, and zeros behind them.
  void find_begins(uint32_t rows, uint32_t k_block, uint32_t* begins) const {
    for (uint32_t first = 0; first < rows; first += k_block, begins += k_block + size_t{1}) {
      for (uint32_t i = 0; i < std::min(k_block, rows - first); ++i) begins[i] = begin_of(first + i);
      begins[k_block] = static_cast<uint32_t>(zeros());
    }
  }
  /// Where a row of X begins.
  uint32_t begin_of(uint32_t row) const {
    const uint32_t tap = row / seen_.channels, channel = row % seen_.channels;
    const uint32_t down = tap / w_.kernel_width * w_.dilation_down;
    const uint32_t plane = down % w_.stride_down * w_.kernel_width + tap % w_.kernel_width;
    return (plane * seen_.channels + channel) * step_ + down / w_.stride_down * pitch();
  }

  /// The pieces with columns of X.
  Span pieces_of(uint32_t col_begin, uint32_t col_end) const {
    if (col_begin == col_end) return {};
    return {(seen_.first + col_begin) / positions_together() * bands_,
            ((seen_.first + col_end - 1) / positions_together() + 1) * bands_};
  }
  /// Positions of the images that have pieces together.
  uint32_t positions_together() const { return w_.out_positions() * together_; }
  /// Whether a piece begins with a position, or there are no further positions.
  bool has_piece_at(uint32_t position) const {
    return position % positions_together() == 0 || position == images_ * w_.out_positions();
  }
  Piece piece(uint32_t i) const {
    const uint32_t image = i / bands_ * together_, row = i % bands_ * piece_rows_;
    return {image, std::min(together_, images_ - image), row,
            row >= w_.out_height ? 0 : std::min(piece_rows_, w_.out_height - row)};
  }
  uint32_t places(const Piece& piece) const { return piece.rows * pitch(); }
  uint32_t most_places() const { return piece_rows_ * pitch(); }

  /// A window that sees the planes' rows in images: its taps are the planes of a channel. Without rows behind
  /// the positions', and with a single tap, it is the window of results.
  Window over_images() const {
    Window w = w_;
    w.out_height += behind_;
    w.kernel_height = phases_, w.dilation_down = 1;
    return w;
  }
  Window over_results() const {
    return {.height = w_.out_height,
            .width = w_.out_width,
            .out_height = w_.out_height,
            .out_width = w_.out_width};
  }
  uint32_t rows_behind() const { return behind_; }

  /// Calls visit(place, position, count) for runs of a piece's places from `begin` to before `end` whose
  /// positions are neighbours.
  template <class Visit>
  void each_run(const Piece& piece, uint32_t begin, uint32_t end, const Visit& visit) const {
    const uint32_t width = together_ == 1 ? piece.rows * w_.out_width : w_.out_width;
    for (uint32_t place = begin, count; place < end; place += count) {
      const uint32_t run = place / width, image = run % together_;
      count = std::min(width - place % width, end - place);
      if (image >= piece.images) continue;
      const uint32_t row = piece.row + run / together_;
      const uint32_t first = ((piece.image + image) * w_.out_height + row) * w_.out_width;
      visit(place, first + place % width, count);
    }
  }

  static constexpr uint32_t kMostStep = 2048, kFewestCols = 4, kMostRuns = kMostStep / kFewestCols;

 private:
  /// Rows of positions of a piece, if planes are to stay in the L2 cache.
  uint32_t most_rows() const {
    constexpr uint32_t kMostFloats = 1 << 17;
    const uint32_t rows = std::min(kMostFloats / std::max(1U, count()), kMostStep - kMaxLanes) / pitch();
    return std::min(w_.out_height, rows - std::min(rows, behind_));
  }

  Seen seen_;
  Window w_;
  uint32_t images_, phases_;
  uint32_t behind_;    // rows of planes behind the positions, which further rows of taps see
  uint32_t together_;  // images whose rows alternate
  uint32_t bands_ = 1, piece_rows_ = 1, step_ = 0;
};

}  // namespace tessera::kernels
