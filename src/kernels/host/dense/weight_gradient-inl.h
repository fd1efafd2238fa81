// The weight gradient of one slice.
#if defined(TESSERA_DENSE_WEIGHT_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_WEIGHT_GRADIENT_INL_H_
#undef TESSERA_DENSE_WEIGHT_GRADIENT_INL_H_
#else
#define TESSERA_DENSE_WEIGHT_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/host/dense/seen_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// dW = dYᵀ·X in panels.
class PanelWeightGradient {
 public:
  PanelWeightGradient(const program::Vertex& v, bool adds)
      : v_(v),
        dy_(v.fields[panel_weight_gradient_field::dy]),
        x_(v.fields[panel_weight_gradient_field::x]),
        dw_(v.fields[panel_weight_gradient_field::dw]),
        factor_(v),
        window_(factor_.sees ? window_of(v.fields[panel_weight_gradient_field::window]) : Window()),
        method_(v),
        images_(method_.image_floats > 0 ? std::optional(SeenRows(window_, x_.cols)) : std::nullopt),
        scratch_(method_, factor_.cols, factor_.sees),
        scalars_(v.fields[panel_weight_gradient_field::scalars], adds),
        copies_dy_(method_.copies_dy || scalars_.alpha != 1),
        first_col_(static_cast<uint32_t>(v.params[panel_weight_gradient_param::first_col])) {}

  void run() const {
    float* scratch = v_.fields[panel_weight_gradient_field::scratch].as<float>();
    const uint32_t some = method_.copied_panels, blocks = (dw_.rows + some - 1) / some;
    uint32_t row = 0;
    do {
      const Rows rows{row, count_from(row), scratch + scratch_.x};
      if (images_) copy_images(rows);
      if (method_.copies_x) copy_tiles(rows);
      program::share_work(v_.helpers, blocks, scratch, [&](uint32_t i, std::byte* of_thread) {
        const uint32_t panel = i * some;
        block(rows, panel, std::min(some, dw_.rows - panel), reinterpret_cast<float*>(of_thread));
      });
      row += rows.count;
    } while (row < factor_.rows);
  }

 private:
  // Rows of X, and where they, or the images under them, are copied, if they are.
  struct Rows {
    uint32_t begin, count;
    float* copied;
  };

  uint32_t end_of(uint32_t part) const { return std::min(factor_.cols, (part + 1) * kPartColumns); }

  // Calls visit(col, cols) for the micro-tiles of columns [begin, end).
  template <class Visit>
  static void each_tile(uint32_t begin, uint32_t end, const Visit& visit) {
    const TileSplit split{end - begin, kTileFactors};
    for (uint32_t i = 0; i < split.tiles(); ++i)
      visit(begin + split.begin(i), split.begin(i + 1) - split.begin(i));
  }

  // Number of rows of X to take together, from one on.
  uint32_t count_from(uint32_t row) const {
    const uint32_t end = row + std::min(method_.depth, factor_.rows - row);
    return (images_ ? images_->batch(row, end).end : end) - row;
  }

  static SeenBatch positions(const Rows& rows) { return {rows.begin, rows.begin + rows.count}; }

  void copy_images(const Rows& rows) const {
    v_.enter(Phase::rearrange);
    copy_seen_rows(x_, *images_, positions(rows), rows.copied);
    v_.enter(Phase::compute);
  }

  void copy_tiles(const Rows& rows) const {
    v_.enter(Phase::rearrange);
    for (uint32_t r = 0; r < rows.count; r += kDenseCopiedRows)
      for (uint32_t part = 0; part * kPartColumns < factor_.cols; ++part)
        copy_tiles(rows, r, std::min(kDenseCopiedRows, rows.count - r), part);
    v_.enter(Phase::compute);
  }

  // Copies a part of the columns of `count` rows, from the r-th on.
  void copy_tiles(const Rows& rows, uint32_t r, uint32_t count, uint32_t part) const {
    const uint32_t row = rows.begin + r, left = part * kPartColumns;
    const FieldView from = factor_.sees ? seen(row, count, left) : x_;
    each_tile(left, end_of(part), [&](uint32_t col, uint32_t cols) HWY_ATTR {
      copy_rows(from, factor_.sees ? 0 : row, count, factor_.sees ? col - left : col, cols,
                rows.copied + size_t{col} * rows.count + size_t{r} * cols, cols);
    });
  }

  // What the window sees of some rows and a part of the columns.
  FieldView seen(uint32_t row, uint32_t count, uint32_t col) const {
    const uint32_t cols = std::min(kPartColumns, factor_.cols - col), first = first_col_ + col;
    float* to = v_.fields[panel_weight_gradient_field::scratch].as<float>() + scratch_.seen;
    with_float_type(x_.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t r = 0; r < count; ++r)
        copy_seen<T>(x_, window_, row + r, first, cols, to + size_t{r} * cols);
    });
    return {reinterpret_cast<std::byte*>(to), Type::f32, count, cols, cols, 1};
  }

  // Adds the products with rows of X to some panels of dW.
  void block(const Rows& rows, uint32_t panel, uint32_t panels, float* of_thread) const {
    float* dy = of_thread + scratch_.dy;
    if (copies_dy_) copy_panels(panel, panels, rows, dy);
    for (uint32_t part = 0; part * kPartColumns < factor_.cols; ++part)
      for (uint32_t p = 0; p < panels; p += kTilePanels)
        add(rows, panel + p, std::min(kTilePanels, panels - p), part,
            dy + size_t{p} * rows.count * kPanelRows, of_thread + scratch_.sums);
  }

  // Adds them to the panels of a micro-tile and a part of the columns, with the panels of dY, if they are
  // copied.
  void add(const Rows& rows, uint32_t panel, uint32_t panels, uint32_t part, const float* copied_dy,
           float* sums) const {
    const MicroTile<float> tile = {
        .panels = copies_dy_ ? copied_dy : row_of<const float>(dy_, rows.begin) + size_t{panel} * kPanelRows,
        .panel_step = copies_dy_ ? size_t{rows.count} * kPanelRows : kPanelRows,
        .factors = nullptr,
        .factor_step = 0,
        .depth = rows.count,
        .sums = nullptr,
        .sums_step = 0,
        .adds = scalars_.beta != 0 || rows.begin > 0,
        .next = nullptr,
        .term_step = copies_dy_ ? kPanelRows : static_cast<size_t>(dy_.row_stride)};
    std::array<TermRun, kDenseGradientDepth> runs = {};
    uint32_t number = 0;
    for (uint32_t begin = part * kPartColumns, end; begin < end_of(part); begin = end) {
      MicroTile<float> of_columns = tile;
      end = take_terms(rows, begin, end_of(part), runs.data(), of_columns);
      each_tile(begin, end, [&](uint32_t col, uint32_t cols) HWY_ATTR {
        MicroTile<float> own = of_columns;
        own.factors =
            method_.copies_x ? rows.copied + size_t{col} * rows.count : of_columns.factors + (col - begin);
        if (method_.copies_x) own.factor_step = cols;
        prefetch_next(rows, panel, panels, number++, own);
        if (dw_.type == Type::f32) {
          if (rows.begin == 0) scale_previous(panel, panels, col, cols);
          return in_place(own, panel, panels, col, cols);
        }
        with_float_type(dw_.type,
                        [&]<class T>(T) HWY_ATTR { rounded<T>(own, panel, panels, col, cols, sums); });
      });
    }
  }

  // Sets the terms of micro-tiles from column `begin` on, and where they are read in place. Returns the end
  // of the columns that have these terms.
  uint32_t take_terms(const Rows& rows, uint32_t begin, uint32_t end, TermRun* runs,
                      MicroTile<float>& tile) const {
    tile.runs = runs;
    if (images_) return take_copied_images(rows, begin, end, runs, tile);
    const auto row_stride = static_cast<size_t>(x_.row_stride);
    if (method_.copies_x || !factor_.sees) {
      *runs = {0, rows.count, 0};
      if (method_.copies_x) return end;
      tile.factors = row_of<const float>(x_, rows.begin) + begin;
      tile.factor_step = row_stride;
      return end;
    }
    const uint32_t channels = x_.cols, col = first_col_ + begin, tap = col / channels;
    tile.factors = x_.as<const float>() + col % channels;
    tile.factor_step = window_.stride_across * row_stride;
    tile.depth = 0;
    window_.each_inside(tap, rows.begin, rows.begin + rows.count,
                        [&](uint32_t position, size_t place, uint32_t count) {
                          *runs++ = {position - rows.begin, count, place * row_stride};
                          tile.depth += count;
                        });
    return std::min(end, (tap + 1) * channels - first_col_);
  }

  // The same where images' rows are copied: micro-tiles lie within a row of taps.
  uint32_t take_copied_images(const Rows& rows, uint32_t begin, uint32_t end, TermRun* runs,
                              MicroTile<float>& tile) const {
    const SeenBatch batch = positions(rows);
    const uint32_t term = first_col_ + begin, width = window_.out_width;
    tile.factors = rows.copied + images_->offset(term);
    tile.factor_step = images_->position_step();
    for (uint32_t position = batch.begin, next; position < batch.end; position = next) {
      const uint32_t row = position / width;
      next = std::min(batch.end, (row + 1) * width);
      *runs++ = {position - batch.begin, next - position,
                 size_t{images_->row_of(batch, row)} * images_->row_step() +
                     (position % width - images_->first_col(batch)) * images_->position_step()};
    }
    return std::min(end, begin + images_->neighbours(term));
  }

  // Sets what a micro-tile prefetches of the next rows: factors that are read in place, if its panels are the
  // first, and a panel of dY, if it is one of the first micro-tiles of its panels.
  void prefetch_next(const Rows& rows, uint32_t panel, uint32_t panels, uint32_t number,
                     MicroTile<float>& tile) const {
    tile.next = tile.panels;
    const uint32_t row = rows.begin + rows.count;
    if (row >= factor_.rows) return;
    if (panel == 0 && method_.holds_x)
      tile.ahead = size_t{rows.count} * window_.positions() / window_.out_positions() *
                   static_cast<size_t>(x_.row_stride);
    if (number >= panels || dy_.type != Type::f32 || !has_contiguous_rows(dy_)) return;
    tile.next = row_of<const float>(dy_, row) + size_t{panel + number} * kPanelRows;
    tile.next_step = static_cast<size_t>(dy_.row_stride);
  }

  // Multiplies a part of the previous dW by beta, unless it is not read.
  void scale_previous(uint32_t panel, uint32_t panels, uint32_t col, uint32_t cols) const {
    if (scalars_.beta == 0 || scalars_.beta == 1) return;
    for (uint32_t p = panel; p < panel + panels; ++p)
      scale(scalars_.beta, size_t{cols} * kPanelRows, row_of<float>(dw_, p) + size_t{col} * kPanelRows);
  }

  void in_place(MicroTile<float> tile, uint32_t panel, uint32_t panels, uint32_t col, uint32_t cols) const {
    tile.sums = row_of<float>(dw_, panel) + size_t{col} * kPanelRows;
    tile.sums_step = static_cast<size_t>(dw_.row_stride);
    if (tile.adds) prefetch_sums(tile, panels, cols);
    run_micro_tile<kInRuns>(tile, panels, cols);
    const uint32_t rows = rows_of(panel + panels - 1);
    if (rows == kPanelRows) return;
    float* last = tile.sums + (panels - 1) * tile.sums_step;
    for (uint32_t c = 0; c < cols; ++c)
      std::fill(last + c * kPanelRows + rows, last + (c + 1) * kPanelRows, 0.0F);
  }

  // Prefetches the sums of the next micro-tile: products cannot begin without them.
  static void prefetch_sums(const MicroTile<float>& tile, uint32_t panels, uint32_t cols) {
    for (uint32_t p = 0; p < panels; ++p)
      for (uint32_t c = cols; c < 2 * cols; ++c)
        hwy::Prefetch(tile.sums + p * tile.sums_step + size_t{c} * kPanelRows);
  }

  template <class T>
  void rounded(MicroTile<float> tile, uint32_t panel, uint32_t panels, uint32_t col, uint32_t cols,
               float* sums) const {
    const PanelFloats d;
    tile.adds = false;
    tile.sums = sums;
    tile.sums_step = size_t{kTileFactors} * kPanelRows;
    run_micro_tile<kInRuns>(tile, panels, cols);
    for (uint32_t p = 0; p < panels; ++p) {
      const uint32_t rows = rows_of(panel + p);
      T* dw = row_of<T>(dw_, panel + p) + size_t{col} * kPanelRows;
      const float* from = sums + p * tile.sums_step;
      for (size_t at = 0; at < size_t{cols} * kPanelRows; at += kPanelLanes) {
        auto value = hn::LoadU(d, from + at);
        if (scalars_.beta != 0) value = hn::MulAdd(hn::Set(d, scalars_.beta), load_f32(d, dw + at), value);
        const size_t lane = at % kPanelRows;
        value = hn::IfThenElseZero(hn::FirstN(d, rows > lane ? rows - lane : 0), value);
        store_rounded(d, value, dw + at);
      }
    }
  }

  // Number of rows of dW in a panel.
  uint32_t rows_of(uint32_t panel) const { return std::min(kPanelRows, dy_.cols - panel * kPanelRows); }

  // Copies panels of alpha · dY as FP32: kPanelRows columns for each row.
  void copy_panels(uint32_t panel, uint32_t panels, const Rows& rows, float* to) const {
    const uint32_t at_once = has_contiguous_rows(dy_) ? kDenseCopiedRows : rows.count;
    const size_t panel_step = size_t{rows.count} * kPanelRows;
    if (rows_of(panel + panels - 1) < kPanelRows)
      std::fill_n(to + (panels - 1) * panel_step, panel_step, 0.0F);
    for (uint32_t r = 0; r < rows.count; r += at_once)
      for (uint32_t p = 0; p < panels; ++p)
        copy_rows(dy_, rows.begin + r, std::min(at_once, rows.count - r), (panel + p) * kPanelRows,
                  rows_of(panel + p), to + p * panel_step + size_t{r} * kPanelRows, kPanelRows);
    if (scalars_.alpha != 1) scale(scalars_.alpha, panels * panel_step, to);
  }

  // Multiplies whole vectors by a number.
  static void scale(float by, size_t count, float* values) {
    const PanelFloats d;
    for (size_t i = 0; i < count; i += kPanelLanes)
      hn::StoreU(hn::Mul(hn::Set(d, by), hn::LoadU(d, values + i)), d, values + i);
  }

  const program::Vertex& v_;
  const FieldView& dy_;
  const FieldView& x_;
  const FieldView& dw_;
  const DenseGradientFactor factor_;
  const Window window_;
  const DenseGradientMethod method_;
  const std::optional<SeenRows> images_;  // whose rows are copied
  const DenseGradientScratch scratch_;
  const DenseScalars scalars_;
  const bool copies_dy_;
  const uint32_t first_col_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
