// The input gradient of one slice.
#if defined(TESSERA_DENSE_INPUT_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_INPUT_GRADIENT_INL_H_
#undef TESSERA_DENSE_INPUT_GRADIENT_INL_H_
#else
#define TESSERA_DENSE_INPUT_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/dense/dot_tile-inl.h"
#include "kernels/host/dense/finish-inl.h"
#include "kernels/host/dense/fold-inl.h"
#include "kernels/host/dense/forward-inl.h"
#include "kernels/host/dense/winograd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline DenseEpilogue epilogue_of_input_gradient(const program::Vertex& v, bool adds) {
  using namespace panel_input_gradient_field;
  return {.result = v.fields[dx],
          .bias = v.fields[bias],
          .scalars = {v.fields[scalars], adds},
          .activation = static_cast<Activation>(v.params[panel_input_gradient_param::activation]),
          .relu = &v.fields[relu]};
}

// dX = activation(dY·W + bias), or activation(dX + dY·W + bias).
class PanelInputGradient {
 public:
  PanelInputGradient(const program::Vertex& v, bool adds)
      : v_(v),
        dy_(v.fields[panel_input_gradient_field::dy]),
        w_(v.fields[panel_input_gradient_field::w]),
        dx_(v.fields[panel_input_gradient_field::dx]),
        scratch_(dy_.rows, dy_.cols, true),
        method_(has_window() ? DenseInputMethod() : DenseInputMethod(w_.type, dy_.rows, dy_.cols)),
        epilogue_(epilogue_of_input_gradient(v, adds)),
        finish_(epilogue_) {}

  void run() const {
    if (has_window()) return run_seen();
    float* scratch = v_.fields[panel_input_gradient_field::scratch].as<float>();
    const uint32_t groups = (dx_.cols + kDenseSumStep - 1) / kDenseSumStep;
    each_batch(dx_.rows, [&](uint32_t begin, uint32_t end) {
      const Batch batch(*this, begin, end, scratch + scratch_.rows);
      v_.enter(Phase::rearrange);
      if (method_.along_batch)
        transpose_batch(begin, batch.rows, scratch + scratch_.weights, batch.main);
      else
        copy_passes(dy_, begin, batch.rows, batch.main);
      copy_passes(dy_, begin + batch.rows, batch.dot_rows, batch.rest);
      v_.enter(Phase::compute);
      program::share_work(v_.helpers, groups, scratch, [&](uint32_t i, std::byte* of_thread) {
        group(i * kDenseSumStep, batch, reinterpret_cast<float*>(of_thread));
      });
    });
  }

 private:
  bool has_window() const { return !v_.fields[panel_input_gradient_field::window].empty(); }

  static constexpr size_t kPanelStep = size_t{kDenseDepth} * kPanelRows;
  static constexpr size_t kSquareStep = size_t{kDenseSumStep} * kPanelRows;

  // Sums of rows of the batch, or the rows of dX.
  struct Sums {
    float* first;
    size_t row_step = kDenseSumStep;
  };

  // Copied rows of dY: [pass], and within it panels or rows.
  struct Batch {
    uint32_t first, rows, dot_rows;
    size_t pass_step;
    float* main;
    float* rest;  // rows of dY for the dot products

    Batch(const PanelInputGradient& p, uint32_t begin, uint32_t end, float* at)
        : first(begin), rows(end - begin), dot_rows(end == p.dx_.rows ? p.method_.dot_rows : 0), main(at) {
      rows -= dot_rows;
      pass_step = p.method_.along_batch ? panels_of(rows) * kPanelStep : size_t{rows} * kDenseRowStep;
      rest = at + dense_passes(p.dy_.cols) * pass_step;
    }
  };

  void run_seen() const {
    const FoldedImages images(v_);
    const auto adjoint = DenseAdjoint::of(images.window, dy_.cols, images.all, dx_.rows, dx_.cols, w_.type);
    const bool has_scratch = adjoint && v_.fields[panel_input_gradient_field::scratch].cols >= adjoint->total;
    if (has_scratch && has_contiguous_rows(dy_)) return run_adjoint(*adjoint, images);
    run_folded(images);
  }

  // Computes dX as the forward product of the window's adjoint.
  void run_adjoint(const DenseAdjoint& adjoint, const FoldedImages& images) const {
    const FieldView& scratch = v_.fields[panel_input_gradient_field::scratch];
    float* const panels = scratch.as<float>() + adjoint.panels;
    const uint32_t count = panels_of(dx_.cols);
    v_.enter(Phase::rearrange);
    program::share_work(v_.helpers, count, nullptr, [&](uint32_t i, std::byte*) {
      transpose_taps(images, i * kPanelRows, panels + i * adjoint.panel_step);
    });
    const FieldView w = {
        reinterpret_cast<std::byte*>(panels),     Type::f32, count, static_cast<uint32_t>(adjoint.panel_step),
        static_cast<int64_t>(adjoint.panel_step), 1};
    if (adjoint.winograd)
      return WinogradForward(v_, dy_, w, *adjoint.winograd, scratch.as<float>(), epilogue_).run(0);
    PanelForward(v_, dy_, w, adjoint.terms, adjoint.layout, scratch, epilogue_)
        .run_seen(SeenRows(adjoint.window, dy_.cols), 0);
  }

  // Copies the taps in reverse order, each transposed, for the channels of a panel. If outputs are not whole
  // panels, squares overlap, and the last one goes beyond the last term.
  void transpose_taps(const FoldedImages& images, uint32_t channel, float* to) const {
    const uint32_t taps = images.window.taps(), cols = std::min(kPanelRows, dx_.cols - channel);
    if (cols < kPanelRows) std::fill_n(to, (size_t{taps} * dy_.cols + kPanelRows) * kPanelRows, 0.0F);
    with_float_type(w_.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t tap = 0; tap < taps; ++tap)
        for (uint32_t panel = 0; panel < w_.rows; ++panel)
          transpose_values(values_at<T>(panel, images.column(taps - 1 - tap, channel)), cols,
                           to + (size_t{tap} * dy_.cols + size_t{panel} * kPanelRows) * kPanelRows);
    });
  }

  // Adds the products to the images' elements under the window.
  void run_folded(const FoldedImages& images) const {
    float* scratch = v_.fields[panel_input_gradient_field::scratch].as<float>();
    const uint32_t parts = (dx_.cols + kDenseSumStep - 1) / kDenseSumStep;
    for (uint32_t image = 0, next; image < images.count; image = next) {
      next = std::min(images.count, image + images.together());
      const uint32_t first = image * images.window.out_positions();
      const uint32_t last = next * images.window.out_positions();
      for (uint32_t row = first; row < last; row += kDenseBatch) {
        const Batch batch(*this, row, std::min(row + kDenseBatch, last), scratch + scratch_.rows);
        v_.enter(Phase::rearrange);
        copy_passes(dy_, row, batch.rows, batch.main);
        v_.enter(Phase::compute);
        program::share_work(v_.helpers, parts, scratch, [&](uint32_t i, std::byte* of_thread) {
          const uint32_t col = i * kDenseSumStep;
          const ImageFold fold(v_, images, image, next, col, std::min(kDenseSumStep, dx_.cols - col));
          if (row == first) fold.clear();
          add_taps(fold, images, batch, reinterpret_cast<float*>(of_thread));
          if (row + batch.rows == last) fold.mask();
        });
      }
    }
  }

  // Adds the batch's products to some channels of the images.
  void add_taps(const ImageFold& fold, const FoldedImages& images, const Batch& batch,
                float* of_thread) const {
    for (uint32_t tap = 0; tap < images.window.taps(); ++tap) {
      multiply(images.column(tap, fold.col()), fold.cols(), batch, of_thread + scratch_.weights,
               {of_thread + scratch_.sums});
      fold.add(tap, batch.first, batch.rows, of_thread + scratch_.sums);
    }
  }

  // Multiplies rows of the batch by some columns of W, and finishes the results.
  void group(uint32_t col, const Batch& batch, float* of_thread) const {
    float* weights = of_thread + scratch_.weights;
    float* sums = of_thread + scratch_.sums;
    const uint32_t cols = std::min(kDenseSumStep, dx_.cols - col);
    if (finishes_tiles(batch)) {
      const bool stores = stores_result(cols);
      const Sums of = stores
                          ? Sums{row_of<float>(dx_, batch.first) + col, static_cast<size_t>(dx_.row_stride)}
                          : Sums{sums};
      return multiply(col, cols, batch, weights, of, [&](uint32_t row, uint32_t count) HWY_ATTR {
        if (!stores) finish_(col, cols, batch.first + row, count, sums + size_t{row} * kDenseSumStep);
      });
    }
    multiply(col, cols, batch, weights, {sums});
    if (method_.along_batch && stores_columns()) {
      store_columns(weights, batch.first, batch.rows, col, cols);
      return finish_(col, cols, batch.first + batch.rows, batch.dot_rows,
                     sums + size_t{batch.rows} * kDenseSumStep);
    }
    if (method_.along_batch)
      for (uint32_t p = 0; p < panels_of(batch.rows); ++p)
        transpose(weights + p * kSquareStep, kPanelRows, cols,
                  std::min(kPanelRows, batch.rows - p * kPanelRows),
                  sums + size_t{p} * kPanelRows * kDenseSumStep, kDenseSumStep);
    finish_(col, cols, batch.first, batch.rows + batch.dot_rows, sums);
  }

  // Whether rows are finished while the L1 cache holds their sums.
  bool finishes_tiles(const Batch& batch) const {
    return !method_.along_batch && batch.dot_rows == 0 && !finish_.wants_batches();
  }

  // Whether micro-tiles store their sums as the result.
  bool stores_result(uint32_t cols) const {
    return finish_.takes_sums() && dy_.cols <= kDenseDepth && cols % kPanelRows == 0;
  }

  // Computes the sums of rows of the batch for some columns of W, which are transposed to `weights`.
  // finish(row, count) takes complete ones, unless they lie along the batch or are dot products.
  template <class Finish = decltype([](uint32_t, uint32_t) {})>
  void multiply(uint32_t col, uint32_t cols, const Batch& batch, float* weights, const Sums& sums,
                const Finish& finish = {}) const {
    const uint32_t passes = dense_passes(dy_.cols);
    for (uint32_t pass = 0; pass < passes; ++pass) {
      const uint32_t term = pass * kDenseDepth, terms = std::min(kDenseDepth, dy_.cols - term);
      const float* rows = batch.main + pass * batch.pass_step;
      const uint32_t panel = term / kPanelRows;
      if (method_.along_batch)
        add_along_batch(rows, batch.rows, panel, terms, col, cols, pass > 0, weights);
      else if (batch.rows > 0)
        add_along_columns(rows, batch.rows, panel, terms, col, cols, pass > 0, weights, sums,
                          [&](uint32_t row, uint32_t count) HWY_ATTR {
                            if (pass + 1 == passes) finish(row, count);
                          });
      if (batch.dot_rows > 0)
        add_dots(batch.rest + size_t{pass} * batch.dot_rows * kDenseRowStep, batch.dot_rows, panel, terms,
                 col, cols, pass > 0, sums.first + size_t{batch.rows} * kDenseSumStep);
    }
  }

  // Whether sums along the batch are columns of dX.
  bool stores_columns() const { return finish_.is_plain() && finish_.wants_batches() && dx_.row_stride == 1; }

  // Stores sums [panel][column][row].
  void store_columns(const float* sums, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols) const {
    const PanelFloats d;
    for (uint32_t r = 0; r < rows; r += kPanelRows, sums += kSquareStep)
      for (uint32_t c = 0; c < cols; ++c) {
        float* to = element_of(dx_, row + r, col + c);
        each_vector(std::min(kPanelRows, rows - r), [&](size_t i, size_t count) HWY_ATTR {
          store_some(hn::LoadU(d, sums + c * kPanelRows + i), to + i, count);
        });
      }
  }

  static uint32_t panels_of(uint32_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

  // Adds the products with rows of W from a panel on to sums.
  template <class Finish>
  void add_along_columns(const float* rows, uint32_t count, uint32_t panel, uint32_t terms, uint32_t col,
                         uint32_t cols, bool adds, float* weights, const Sums& sums,
                         const Finish& finish) const {
    transpose_panels(panel, terms, col, cols, weights);
    const MicroTile<float> tile = {.panels = weights,
                                   .panel_step = kPanelStep,
                                   .factors = rows,
                                   .factor_step = 1,
                                   .depth = terms,
                                   .sums = sums.first,
                                   .sums_step = kPanelRows,
                                   .adds = adds,
                                   .next = weights,
                                   .row_step = sums.row_step};
    run_micro_tiles<kAcrossRows>(tile, panels_of(cols), count, finish);
  }

  // Adds the products of panels of the batch with rows of W to sums: [panel][column][row].
  void add_along_batch(const float* batch, uint32_t count, uint32_t panel, uint32_t terms, uint32_t col,
                       uint32_t cols, bool adds, float* sums) const {
    for (uint32_t p = 0; p < panels_of(count); p += kDensePanels) {
      const MicroTile<float> tile = {.panels = batch + p * kPanelStep,
                                     .panel_step = kPanelStep,
                                     .factors = values_at<float>(panel, col),
                                     .factor_step = static_cast<size_t>(w_.row_stride),
                                     .depth = terms,
                                     .sums = sums + p * kSquareStep,
                                     .sums_step = kSquareStep,
                                     .adds = adds,
                                     .next = batch + p * kPanelStep};
      run_micro_tiles<kInPanels>(tile, std::min(kDensePanels, panels_of(count) - p), cols,
                                 [](uint32_t, uint32_t) {});
    }
  }

  // Adds dot products with rows of W from a panel on to sums: [row of the batch][column].
  void add_dots(const float* rows, uint32_t count, uint32_t panel, uint32_t terms, uint32_t col,
                uint32_t cols, bool adds, float* sums) const {
    with_float_type(w_.type, [&]<class T>(T) HWY_ATTR {
      const DotTile<T> tile = {.columns = values_at<T>(panel, col),
                               .panel_step = static_cast<size_t>(w_.row_stride),
                               .rows = rows,
                               .panels = panels_of(terms),
                               .adds = adds,
                               .sums = sums};
      run_dot_tiles(tile, count, cols);
    });
  }

  // Copies rows of dY to panels: [pass][panel][kDenseDepth][kPanelRows], with zeros after the last row.
  void transpose_batch(uint32_t first, uint32_t count, float* rows, float* to) const {
    for (uint32_t term = 0; term < dy_.cols; term += kDenseDepth) {
      const uint32_t terms = std::min(kDenseDepth, dy_.cols - term);
      for (uint32_t r = 0; r < count; r += kPanelRows, to += kPanelStep) {
        const uint32_t some = std::min(kPanelRows, count - r);
        if (!has_contiguous_rows(dy_) && dy_.row_stride == 1) {
          copy_columns(first + r, some, term, terms, to);
          continue;
        }
        copy_rows(dy_, first + r, some, term, terms, rows, kDenseRowStep);
        std::fill(rows + size_t{some} * kDenseRowStep, rows + size_t{kPanelRows} * kDenseRowStep, 0.0F);
        transpose(rows, kDenseRowStep, kPanelRows, terms, to, kPanelRows);
      }
    }
  }

  // Copies a part of dY's columns to a panel.
  void copy_columns(uint32_t row, uint32_t rows, uint32_t col, uint32_t cols, float* to) const {
    const PanelFloats d;
    for (uint32_t c = 0; c < cols; ++c, to += kPanelRows) {
      const float* from = element_of(dy_, row, col + c);
      for (size_t i = 0; i < kPanelRows; i += kPanelLanes) {
        const size_t count = rows > i ? std::min<size_t>(rows - i, kPanelLanes) : 0;
        hn::StoreU(count > 0 ? load_some(from + i, count) : hn::Zero(d), d, to + i);
      }
    }
  }

  template <class T>
  HWY_INLINE const T* values_at(uint32_t panel, uint32_t col) const {
    return row_of<const T>(w_, panel) + size_t{col} * kPanelRows;
  }

  // Copies panels of Wᵀ: kPanelRows columns of W for each of `terms` rows, from a panel on.
  void transpose_panels(uint32_t panel, uint32_t terms, uint32_t col, uint32_t cols, float* to) const {
    with_float_type(w_.type, [&]<class T>(T) HWY_ATTR {
      const uint32_t end = panel + (terms + kPanelRows - 1) / kPanelRows;
      for (uint32_t p = panel; p < end; ++p, to += kPanelRows * kPanelRows) {
        const T* values = values_at<T>(p, col);
        prefetch_values(values_at<T>(std::min(p + kPanelsAhead, w_.rows - 1), col), cols);
        for (uint32_t c = 0; c < cols; c += kPanelRows)
          transpose_values(values + size_t{c} * kPanelRows, std::min(kPanelRows, cols - c),
                           to + size_t{c} * kDenseDepth);
      }
    });
  }

  // Panels are too far apart for hardware prefetchers.
  static constexpr uint32_t kPanelsAhead = 2;
  template <class T>
  static HWY_INLINE void prefetch_values(const T* values, uint32_t cols) {
    constexpr size_t kLineValues = 64 / sizeof(T);
    for (size_t i = 0; i < size_t{cols} * kPanelRows; i += kLineValues) hwy::Prefetch(values + i);
  }

  template <class T>
  static HWY_INLINE void transpose_values(const T* values, uint32_t cols, float* to) {
    const PanelFloats d;
    if constexpr (sizeof(T) == sizeof(float)) {
      transpose(values, kPanelRows, cols, kPanelRows, to, kPanelRows);
    } else {
      HWY_ALIGN float wide[kPanelRows * kPanelRows];
      for (size_t i = 0; i < cols * kPanelRows; i += kPanelLanes)
        hn::Store(load_f32(d, values + i), d, wide + i);
      transpose(wide, kPanelRows, cols, kPanelRows, to, kPanelRows);
    }
  }

  const program::Vertex& v_;
  const FieldView& dy_;
  const FieldView& w_;
  const FieldView& dx_;
  const DenseRowScratch scratch_;
  const DenseInputMethod method_;
  const DenseEpilogue epilogue_;
  const RowFinish finish_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
