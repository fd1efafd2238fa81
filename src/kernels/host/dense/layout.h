// The layout of the scratch of the dense products.
#pragma once

#include <tessera/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/isa.h"
#include "kernels/common/bf16_product.h"
#include "kernels/common/element.h"
#include "kernels/host/dense/blocking.h"
#include "kernels/host/dense/seen_rows.h"
#include "kernels/host/dense/winograd.h"

namespace tessera::kernels {

/// alpha, and beta of a previous result that is not read: 0.
struct DenseScalars {
  float alpha = 1, beta = 0;

  DenseScalars(const program::FieldView& scalars, bool adds) : beta(adds ? 1 : 0) {
    if (scalars.empty()) return;
    alpha = scalars.as<const float>()[0];
    if (adds) beta = scalars.as<const float>()[scalars.col_stride];
  }
};

/// Passes over a sum of `terms` terms.
inline uint32_t dense_passes(uint32_t terms) { return std::max(1U, (terms + kDenseDepth - 1) / kDenseDepth); }

/// Terms of the sums of a forward product.
inline uint32_t panel_forward_terms(const program::Vertex& v) {
  const program::FieldView& window = v.fields[panel_forward_field::window];
  const uint32_t cols = v.fields[panel_forward_field::x].cols;
  return window.empty() ? cols : cols * window_of(window).taps();
}

/// Blocking of products by BF16 instructions: terms of a pass, whose part of some rows of A stays in the L1
/// cache, panels of B whose part of a pass stays in the L2 cache, and rows of a batch.
inline constexpr uint32_t kBf16Depth = 512, kBf16Panels = 16, kBf16Batch = 512;
inline constexpr uint32_t kBf16Groups = kBf16Panels / kDensePanels;

/// Whether products of these fields use the BF16 instructions of `isa`.
inline bool multiplies_bf16(const program::FieldView& a, const program::FieldView& b, Isa isa) {
  return a.type == Type::bf16 && b.type == Type::bf16 && has_fast_bf16_products(isa);
}

/// Whether BF16 products can read rows in place: rows are whole steps, and the rows of a tile lie in
/// different sets of the L1 cache.
inline bool can_multiply_in_place(const program::FieldView& field) {
  constexpr int64_t kSameSets = 1024 / sizeof(base::Bfloat16);
  return field.cols > 0 && field.cols % kBf16Step == 0 && field.row_stride % kSameSets != 0;
}

/// Passes over a sum of BF16 products: as equal as whole steps allow.
inline TileSplit bf16_passes(uint32_t terms) {
  const uint32_t steps = std::max(1U, (terms + kBf16Step - 1) / kBf16Step);
  return {steps, kBf16Depth / kBf16Step};
}

/// Scratch of BF16 products whose results are rows of a batch; offsets in floats.
struct Bf16RowScratch {
  size_t rows = 0;  ///< copied rows: [row][row_step]
  size_t row_step;  ///< in values: a cache line more than the terms, like kDenseRowStep
  size_t panels;    ///< a thread's panels of B for a pass
  size_t sums;      ///< a thread's sums: [group of panels][row][kDenseSumStep]
  size_t total;

  Bf16RowScratch(uint32_t n, uint32_t terms, uint32_t cols) {
    const size_t batch = std::min(n, kBf16Batch);
    const size_t some = std::min(kBf16Panels, round_up(cols, kDenseSumStep) / kBf16Columns);
    const size_t depth = std::min(kBf16Depth, round_up(std::max(terms, 1U), kBf16Step));
    row_step = round_up(std::max(terms, 1U), kBf16Step) + kBf16Step;
    panels = round_up(static_cast<uint32_t>(batch * row_step / 2), 16);
    sums = panels + some * depth * kBf16Columns / 2;
    total = sums + some * batch * kBf16Columns;
  }
};

/// Maximum number of rows of a batch that are computed as dot products.
inline constexpr uint32_t kMostDotRows = 8;

/// How an input gradient is computed. Vectors lie along the columns of W, which is transposed on the fly, or
/// along the batch: then W is read in place, and only dY and dX are transposed, but the batch is padded to
/// whole vectors. Both add the same products in the same order. The last rows of a batch, if few are left
/// beyond whole vectors, are dot products.
struct DenseInputMethod {
  uint32_t dot_rows = 0;  ///< number of last rows of the batch that are dot products
  bool along_batch = false;

  DenseInputMethod() = default;
  DenseInputMethod(Type weights, uint32_t n, uint32_t m) {
    constexpr uint32_t kLeastTerms = 256;  // below, lanes are added too often
    const uint32_t rest = n % kPanelRows;
    if (rest <= kMostDotRows && m >= kLeastTerms) dot_rows = rest;
    if (weights != Type::f32) return;
    // Transposing a term of a panel takes as long as multiplying it by this many rows.
    constexpr double kTransposeRows = 5;
    const double rows = n - dot_rows, padded = round_up(n - dot_rows, kPanelRows);
    along_batch = (padded - rows) * m + kTransposeRows * padded < kTransposeRows * round_up(m, kPanelRows);
  }
};

/// The images of an input gradient with a window. Batches are whole images, or parts of one, so that the
/// order of a sum does not depend on how images are partitioned.
struct FoldedImages {
  Window window;
  uint32_t count;          ///< number of images
  uint32_t channels;       ///< of all images
  uint32_t first_channel;  ///< of the vertex
  uint32_t all;            ///< number of images of all vertices

  explicit FoldedImages(const program::Vertex& v)
      : window(window_of(v.fields[panel_input_gradient_field::window])),
        count(v.fields[panel_input_gradient_field::dx].rows / window.positions()),
        channels(v.fields[panel_input_gradient_field::w].cols / kPanelRows / window.taps()),
        first_channel(static_cast<uint32_t>(v.params[panel_input_gradient_param::first_channel])),
        all(static_cast<uint32_t>(v.params[panel_input_gradient_param::images])) {}

  /// Number of images of a batch.
  uint32_t together() const { return std::max(1U, kDenseBatch / window.out_positions()); }
  /// Number of batches.
  uint32_t batches() const {
    const uint32_t parts = (window.out_positions() + kDenseBatch - 1) / kDenseBatch;
    return (count + together() - 1) / together() * parts;
  }
  /// The column of W for a tap and a channel of the vertex.
  uint32_t column(uint32_t tap, uint32_t channel) const { return tap * channels + first_channel + channel; }
};

/// Scratch of products whose results are rows of a batch; offsets in floats.
struct DenseRowScratch {
  size_t rows = 0;  ///< copied rows in FP32: [pass][row][kDenseRowStep], or images' rows under a window
  size_t weights;   ///< a thread's transposed panels: [panel][kDenseDepth][kPanelRows]
  size_t sums;      ///< a thread's sums: [row][kDenseSumStep]
  size_t total;

  DenseRowScratch(uint32_t n, uint32_t terms, bool transposes) {
    const size_t rows_size = dense_passes(terms) * batch(n) * kDenseRowStep;
    place(rows_size, transposes ? size_t{kDensePanels} * kDenseDepth * kPanelRows : 0, n);
  }
  DenseRowScratch(uint32_t n, const SeenRows& seen) { place(seen.size(n), 0, n); }

 private:
  static size_t batch(uint32_t n) { return round_up(std::min(n, kDenseBatch), kPanelRows); }

  void place(size_t rows_size, size_t weights_size, uint32_t n) {
    weights = rows_size;
    sums = weights + weights_size;
    total = sums + batch(n) * kDenseSumStep;
  }
};

/// An input gradient of images as the forward product of the window's adjoint over dY, with the taps
/// transposed to panels of channels: its sums stay in registers, instead of the sums of each tap being added
/// to the images. Not for sums of many outputs, next to which adding takes no time, unless Winograd's
/// products save more, nor for images much larger than the results: the adjoint multiplies the zeros around
/// these.
struct DenseAdjoint {
  Window window;
  uint32_t terms;     ///< of a sum: outputs of all taps
  size_t panel_step;  ///< floats of a panel: [term][kPanelRows], and the rest of the last square
  std::optional<Winograd> winograd;  ///< how the forward product is computed
  DenseRowScratch layout;            ///< of the forward product otherwise
  size_t panels;                     ///< where the panels are, behind its scratch
  size_t total;

  /// For dX of `rows` positions and `channels` channels, a part of all images.
  static std::optional<DenseAdjoint> of(const Window& window, uint32_t m, uint32_t images, uint32_t rows,
                                        uint32_t channels, Type weights) {
    constexpr uint32_t kMostOutputs = 256;
    const std::optional<Window> adjoint = window.adjoint();
    const bool is_large = 4 * uint64_t{window.positions()} > 5 * uint64_t{window.out_positions()};
    if (!adjoint || is_large || m == 0) return {};
    const std::optional<Winograd> winograd = Winograd::of(*adjoint, images, m, weights, Type::f32);
    if (!winograd && m > kMostOutputs) return {};
    return DenseAdjoint(*adjoint, winograd, m, rows, channels);
  }

 private:
  DenseAdjoint(const Window& adjoint, const std::optional<Winograd>& by, uint32_t m, uint32_t rows,
               uint32_t channels)
      : window(adjoint),
        terms(m * adjoint.taps()),
        panel_step((size_t{terms} + kPanelRows) * kPanelRows),
        winograd(by),
        layout(rows, SeenRows(adjoint, m)) {
    const uint32_t count = round_up(channels, kPanelRows) / kPanelRows;
    const size_t before = winograd ? WinogradScratch(*winograd, count).total : layout.total;
    panels = (before + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
    total = panels + count * panel_step;
  }
};

/// Winograd's products for a forward product; none: they do not suit it.
inline std::optional<Winograd> winograd_of_forward(const program::Vertex& v) {
  using namespace panel_forward_field;
  if (v.fields[window].empty()) return {};
  const Window seen = window_of(v.fields[window]);
  const program::FieldView &images = v.fields[x], &weight = v.fields[w];
  const std::optional<Winograd> winograd =
      Winograd::of(seen, images.rows / seen.positions(), images.cols, weight.type, images.type);
  // Programs of earlier versions have less scratch.
  if (!winograd || v.fields[scratch].cols < WinogradScratch(*winograd, weight.rows).total) return {};
  return winograd;
}

inline DenseRowScratch panel_forward_scratch(const program::Vertex& v) {
  const program::FieldView& window = v.fields[panel_forward_field::window];
  const uint32_t rows = v.fields[panel_forward_field::y].rows;
  if (window.empty()) return {rows, panel_forward_terms(v), false};
  return {rows, SeenRows(window_of(window), v.fields[panel_forward_field::x].cols)};
}

/// X of a weight gradient: its size, and whether it has what a window sees.
struct DenseGradientFactor {
  bool sees;
  uint32_t rows, cols;

  explicit DenseGradientFactor(const program::Vertex& v)
      : sees(!v.fields[panel_weight_gradient_field::window].empty()),
        rows(v.fields[sees ? panel_weight_gradient_field::dy : panel_weight_gradient_field::x].rows),
        cols(sees ? v.fields[panel_weight_gradient_field::dw].cols / kPanelRows
                  : v.fields[panel_weight_gradient_field::x].cols) {}
};

/// Winograd's products for a weight gradient, which need all columns of dW; none: they do not suit it.
inline std::optional<Winograd> winograd_of_gradient(const program::Vertex& v) {
  using namespace panel_weight_gradient_field;
  if (v.fields[window].empty()) return {};
  const Window seen = window_of(v.fields[window]);
  const program::FieldView &images = v.fields[x], &gradient = v.fields[dy], &weight = v.fields[dw];
  const uint32_t count = images.rows / seen.positions();
  if (gradient.rows != count * seen.out_positions() || !has_contiguous_rows(gradient)) return {};
  const std::optional<Winograd> winograd = Winograd::of(seen, count, images.cols, weight.type, images.type);
  // Programs of earlier versions may divide columns, or have less scratch.
  const bool has_all = weight.cols == images.cols * seen.taps() * kPanelRows;
  if (!winograd || !has_all || v.fields[scratch].cols < WinogradGradient::kScratch) return {};
  return winograd;
}

/// How a weight gradient is computed. All panels of dW take some rows of X at a time; sums that are rounded
/// need all rows at once. These rows, or the images under a window, are read in place if they are FP32 and
/// contiguous, and the L2 cache holds them. Of images with few channels, whole rows are copied, with the
/// zeros around them. Otherwise rows of X are copied micro-tile by micro-tile, in FP32, unless they can be
/// read and too few rows or panels would read the copy. Panels of dY are copied unless few columns would read
/// the copy.
struct DenseGradientMethod {
  uint32_t depth;
  uint32_t copied_panels;  ///< of dY, together
  bool copies_x;
  bool holds_x = false;  ///< whether the L2 cache holds rows of X that are read in place, and the next ones
  bool copies_dy = true;
  size_t image_floats = 0;  ///< size of the copies of images' rows; 0: none are copied

  DenseGradientMethod(Type values, Type weights, uint32_t n, uint32_t panels, bool has_rows) {
    constexpr uint32_t kLeastRows = 64, kLeastPanels = 8;
    depth = std::max(1U, weights == Type::f32 ? std::min(n, kDenseGradientDepth) : n);
    // Two threads may share them.
    const uint32_t half = round_up((panels + 1) / 2, kDensePanels);
    copied_panels =
        std::clamp(std::min(half, panels), 1U, weights == Type::f32 ? kDenseCopiedPanels : kDensePanels);
    copies_x = !has_rows || values != Type::f32 ||
               (weights == Type::f32 && n >= kLeastRows && panels >= kLeastPanels);
  }
  explicit DenseGradientMethod(const program::Vertex& v)
      : DenseGradientMethod(DenseGradientFactor(v), v.fields[panel_weight_gradient_field::dy],
                            v.fields[panel_weight_gradient_field::x],
                            v.fields[panel_weight_gradient_field::window],
                            v.fields[panel_weight_gradient_field::dw]) {}

  /// Number of floats for copies of X.
  size_t x_floats(uint32_t k, bool sees) const {
    if (image_floats > 0) return image_floats;
    return copied_floats(k) + (sees ? size_t{kDenseCopiedRows} * kDenseColumns : 0);
  }
  /// Number of floats for copies of micro-tiles.
  size_t copied_floats(uint32_t k) const { return copies_x ? size_t{depth} * round_up(k, 16) : 0; }

 private:
  DenseGradientMethod(const DenseGradientFactor& factor, const program::FieldView& dy,
                      const program::FieldView& x, const program::FieldView& seen_by,
                      const program::FieldView& dw)
      : DenseGradientMethod(x.type, dw.type, factor.rows, dw.rows, !factor.sees && has_contiguous_rows(x)) {
    // Micro-tiles lie within a tap: fewer channels have too few sums. Copying a panel takes as long as
    // multiplying it by about 9 columns.
    constexpr uint32_t kLeastChannels = 3, kFewChannels = 8, kMostColumnsInPlace = 160;
    const Window window = factor.sees ? window_of(seen_by) : Window();
    const bool is_summed = dw.type == Type::f32 && has_contiguous_rows(x);
    const bool copies_images = is_summed && factor.sees && factor.rows > 0 && x.cols < kFewChannels &&
                               can_copy_images(window, x.cols);
    if (copies_images) image_floats = floats_of_images(window, x.cols, factor);
    holds_x = is_summed && !copies_images && x.type == Type::f32 &&
              (!factor.sees || x.cols >= kLeastChannels) && can_hold(x, window, factor.sees, dw.rows);
    if (holds_x || image_floats > 0) copies_x = false;
    copies_dy = factor.cols > kMostColumnsInPlace || dy.empty() || dy.type != Type::f32 ||
                !has_contiguous_rows(dy) || dy.row_stride > kDenseColumns / 2 || dy.cols % kPanelRows != 0;
    if (holds_x || (image_floats > 0 && !copies_dy)) depth = std::min(depth, kDenseDepthInPlace);
  }

  /// Whether the L2 cache holds rows in place. Taps that are neighbours read the same rows; otherwise, many
  /// panels repay copying long ones. Copies have the zeros beyond images, so no partition of images
  /// may copy what another one reads in place.
  static bool can_hold(const program::FieldView& x, const Window& window, bool sees, uint32_t panels) {
    constexpr uint32_t kManyPanels = 16;
    const bool reads_again = sees ? window.taps() > 1 && window.stride_across == 1 : panels < kManyPanels;
    return x.row_stride * window.stride_across <= (reads_again ? kDenseColumns : kDenseColumns / 2);
  }

  /// Whether micro-tiles can read copied rows of images: a row of taps has enough elements, which are
  /// neighbours, and rows of taps overlap.
  static bool can_copy_images(const Window& window, uint32_t channels) {
    constexpr uint32_t kLeastElements = 5, kMostTaps = 16;
    const bool overlaps =
        window.stride_down <= window.kernel_height && window.stride_across <= window.kernel_width;
    const bool are_near = window.dilation_across == 1 && window.dilation_down <= kMostTaps &&
                          std::max(window.kernel_height, window.kernel_width) <= kMostTaps;
    return overlaps && are_near && window.out_width <= kDenseBatch &&
           window.kernel_width * channels >= kLeastElements;
  }

  /// Number of floats of copies of images' rows; 0: copies of micro-tiles have fewer.
  size_t floats_of_images(const Window& window, uint32_t channels, const DenseGradientFactor& factor) const {
    const SeenRows rows(window, channels);
    const size_t floats = rows.size(factor.rows);
    return rows.step() == channels && floats <= x_floats(factor.cols, true) ? floats : 0;
  }
};

/// Scratch of the weight gradient; offsets in floats.
struct DenseGradientScratch {
  size_t x = 0;  ///< copied rows of X: [micro-tile][row][column]; or of images, as in SeenRows
  size_t seen;   ///< what a window sees of some of these rows: [row][column]
  size_t dy;     ///< a thread's panels of dY: [panel][row][kPanelRows]
  size_t sums;   ///< a thread's results before rounding: [panel][column][kPanelRows]
  size_t total;

  DenseGradientScratch(const DenseGradientMethod& method, uint32_t k, bool sees) {
    seen = method.copied_floats(k);
    dy = method.x_floats(k, sees);
    sums = dy + size_t{method.depth} * method.copied_panels * kPanelRows;
    total = sums + size_t{kDenseSumStep} * kMostDenseColumns;
  }
};

}  // namespace tessera::kernels
