// Convolutions by 3 × 3 taps as products of transformed tiles: Winograd's F(2 × 2, 3 × 3), in which 2 × 2
// results take 16 products instead of 36 (Lavin and Gray 2016, arXiv:1509.09308).
#pragma once

#include <tessera/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/common/window.h"
#include "kernels/host/dense/blocking.h"

namespace tessera::kernels {

/// Tiles of results, numbered image by image and row by row, and the 4 × 4 positions of images under each.
struct Winograd {
  static constexpr uint32_t kResults = 2;  ///< of a tile in each dimension
  static constexpr uint32_t kTaps = 3;     ///< in each dimension
  static constexpr uint32_t kSide = 4;     ///< positions under a tile in each dimension
  static constexpr uint32_t kPoints = kSide * kSide;

  Window window;
  uint32_t channels;

  /// For FP32 images and weights, if the results of all images repay the transformation of weights, and if
  /// tiles hardly go beyond images; none for other products. It does not depend on how these are partitioned.
  static std::optional<Winograd> of(const Window& window, uint32_t images, uint32_t channels, Type weights,
                                    Type values) {
    constexpr uint32_t kLeastChannels = 32, kLeastPositions = kDenseBatch;
    constexpr double kMostWork = 1.35;
    const bool takes_window = window.kernel_height == kTaps && window.kernel_width == kTaps &&
                              window.stride_down == 1 && window.stride_across == 1 &&
                              window.dilation_down == 1 && window.dilation_across == 1;
    if (!takes_window || weights != Type::f32 || values != Type::f32) return {};
    if (channels < kLeastChannels || channels > kDenseDepth) return {};
    const Winograd winograd{window, channels};
    const double positions = window.out_positions();
    const double computed = double{kResults * kResults} * winograd.tiles_down() * winograd.tiles_across();
    if (images * positions < kLeastPositions || computed > kMostWork * positions) return {};
    return winograd;
  }

  /// An image, and the first position of a tile in its results.
  struct Place {
    uint32_t image, row, col;
  };
  Place place_of(uint32_t tile) const {
    const uint32_t in_image = tile % tiles_of_image();
    return {tile / tiles_of_image(), in_image / tiles_across() * kResults,
            in_image % tiles_across() * kResults};
  }

  uint32_t tiles_down() const { return (window.out_height + 1) / kResults; }
  uint32_t tiles_across() const { return (window.out_width + 1) / kResults; }
  uint32_t tiles_of_image() const { return tiles_down() * tiles_across(); }

  /// The first tile of the row of tiles with a position of the results, and of the next row.
  uint32_t tile_of(uint32_t position) const {
    const uint32_t row = position / window.out_width;
    return (row / window.out_height * tiles_down() + row % window.out_height / kResults) * tiles_across();
  }
  uint32_t end_of(uint32_t position) const { return tile_of(position) + tiles_across(); }

  /// Number of tiles that are processed together: the L2 cache holds their points beside two panels' weights.
  uint32_t together() const { return channels <= 256 ? 48 : 24; }
  /// Number of points of a tile in one row of kDenseRowStep floats, each with its channels in whole panels.
  uint32_t points_of_row() const { return std::min(kPoints, kDenseDepth / point_step()); }
  uint32_t point_step() const { return round_up(channels, kPanelRows); }
  /// Where the first tile has a point.
  size_t offset_of(uint32_t point) const {
    return size_t{point / points_of_row()} * together() * kDenseRowStep +
           point % points_of_row() * point_step();
  }
  /// Floats of a panel of transformed weights: [point][channel][kPanelRows].
  size_t panel_step() const { return size_t{kPoints} * channels * kPanelRows; }
};

/// Scratch of these products; offsets in floats.
struct WinogradScratch {
  static constexpr uint32_t kFinished = 8;  ///< number of tiles that are finished together

  size_t tiles = 0;  ///< transformed tiles: [some points][tile][kDenseRowStep]
  size_t sums;       ///< a thread's sums: [point][tile][kDenseSumStep]
  size_t results;    ///< a thread's results: [row][position][kDenseSumStep]
  size_t weights;    ///< transformed weights: panels
  size_t total;

  WinogradScratch(const Winograd& of, uint32_t panels) {
    const uint32_t rows = (Winograd::kPoints - 1) / of.points_of_row() + 1;
    sums = size_t{rows} * of.together() * kDenseRowStep;
    results = sums + size_t{Winograd::kPoints} * of.together() * kDenseSumStep;
    weights = results + size_t{kFinished} * Winograd::kResults * Winograd::kResults * kDenseSumStep;
    total = weights + panels * of.panel_step();
  }
};

/// Blocking of the weight gradient. A thread adds the products of some tiles, point by point, to the sums of
/// some panels and channels; a point's factors stay in the L1 cache, and all points' in the L2 cache.
struct WinogradGradient {
  static constexpr uint32_t kTogether = 48, kPanels = 4, kChannels = 128;
  static constexpr uint32_t kRowStep = kChannels + 16;  ///< of a tile's channels: in other sets than the next

  // A thread's scratch; offsets in floats.
  static constexpr size_t kImages = 0;  ///< [point][tile][kRowStep]
  static constexpr size_t kGradients = kImages + size_t{Winograd::kPoints} * kTogether * kRowStep;
  ///< [point][panel][tile][kPanelRows]
  static constexpr size_t kSums = kGradients + size_t{Winograd::kPoints} * kPanels * kTogether * kPanelRows;
  ///< [point][panel][channel][kPanelRows]
  static constexpr size_t kScratch = kSums + size_t{Winograd::kPoints} * kPanels * kChannels * kPanelRows;
};

}  // namespace tessera::kernels
