// The forward product of one slice.
#if defined(TESSERA_DENSE_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_FORWARD_INL_H_
#undef TESSERA_DENSE_FORWARD_INL_H_
#else
#define TESSERA_DENSE_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/dense/finish-inl.h"
#include "kernels/host/dense/seen_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline DenseEpilogue epilogue_of_forward(const program::Vertex& v, bool adds) {
  using namespace panel_forward_field;
  return {.result = v.fields[y],
          .bias = v.fields[bias],
          .scalars = {v.fields[scalars], adds},
          .activation = static_cast<Activation>(v.params[panel_forward_param::activation])};
}

// Y = activation(X·Wᵀ + bias), or activation(Y + X·Wᵀ + bias).
class PanelForward {
 public:
  PanelForward(const program::Vertex& v, bool adds)
      : PanelForward(v, v.fields[panel_forward_field::x], v.fields[panel_forward_field::w],
                     panel_forward_terms(v), panel_forward_scratch(v), v.fields[panel_forward_field::scratch],
                     epilogue_of_forward(v, adds)) {}

  // For a vertex of any codelet.
  PanelForward(const program::Vertex& v, const FieldView& x, const FieldView& w, uint32_t terms,
               const DenseRowScratch& layout, const FieldView& scratch, const DenseEpilogue& epilogue)
      : v_(v),
        x_(x),
        w_(w),
        y_(epilogue.result),
        terms_(terms),
        layout_(layout),
        scratch_(scratch.as<float>()),
        finish_(epilogue) {}

  void run() const {
    const FieldView& window = v_.fields[panel_forward_field::window];
    if (!window.empty())
      return run_seen(SeenRows(window_of(window), x_.cols),
                      static_cast<uint32_t>(v_.params[panel_forward_param::first_row]));
    each_batch(y_.rows, [&](uint32_t begin, uint32_t end) {
      v_.enter(Phase::rearrange);
      copy_passes(x_, begin, end - begin, copies());
      if (end - begin <= kFewRows)
        compute(kFewRowPanels, [&](uint32_t panel, float* sums) { group_of_few(panel, begin, end, sums); });
      else
        compute(kDensePanels, [&](uint32_t panel, float* sums) { group(panel, begin, end, sums); });
    });
  }

  // For what a window sees from position `first` on.
  void run_seen(const SeenRows& seen, uint32_t first) const {
    const uint32_t end = first + y_.rows;
    for (SeenBatch batch{first, first}; batch.begin < end; batch.begin = batch.end) {
      batch = seen.batch(batch.begin, end);
      v_.enter(Phase::rearrange);
      copy_seen_rows(x_, seen, batch, copies());
      compute(kDensePanels,
              [&](uint32_t panel, float* sums) { group_of_seen(seen, batch, first, panel, sums); });
    }
  }

 private:
  float* copies() const { return scratch_ + layout_.rows; }

  // Calls work(panel, sums) for groups of `some` panels.
  template <class Work>
  void compute(uint32_t some, const Work& work) const {
    v_.enter(Phase::compute);
    const uint32_t groups = (w_.rows + some - 1) / some;
    program::share_work(v_.helpers, groups, scratch_, [&](uint32_t i, std::byte* of_thread) {
      work(i * some, reinterpret_cast<float*>(of_thread) + layout_.sums);
    });
  }

  // Calls work(tile, panels, is_last) for the passes over some panels.
  template <class Work>
  void each_pass(uint32_t panel, float* sums, const Work& work) const {
    const uint32_t panels = std::min(kDensePanels, w_.rows - panel);
    const uint32_t next = panel + kDensePanels < w_.rows ? panel + kDensePanels : panel;
    const uint32_t passes = dense_passes(terms_);
    with_float_type(w_.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t pass = 0; pass < passes; ++pass) {
        const uint32_t term = pass * kDenseDepth;
        const size_t value = size_t{term} * kPanelRows;
        const MicroTile<T> tile = {.panels = row_of<const T>(w_, panel) + value,
                                   .panel_step = static_cast<size_t>(w_.row_stride),
                                   .factors = nullptr,
                                   .factor_step = 1,
                                   .depth = std::min(kDenseDepth, terms_ - term),
                                   .sums = sums,
                                   .sums_step = kPanelRows,
                                   .adds = pass > 0,
                                   .next = row_of<const T>(w_, next) + value,
                                   .first_term = term};
        work(tile, panels, pass + 1 == passes);
      }
    });
  }

  void finish(uint32_t panel, uint32_t row, uint32_t rows, float* sums) const {
    const uint32_t col = panel * kPanelRows;
    finish_(col, std::min(kDenseSumStep, y_.cols - col), row, rows, sums);
  }

  // Whether micro-tiles of these panels store their sums as the result.
  bool stores_result(uint32_t panel, uint32_t panels) const {
    return finish_.takes_sums() && terms_ <= kDenseDepth && (panel + panels) * kPanelRows <= y_.cols;
  }
  template <class T>
  void store_result(MicroTile<T>& tile, uint32_t row, uint32_t panel) const {
    tile.sums = row_of<float>(y_, row) + size_t{panel} * kPanelRows;
    tile.row_step = static_cast<size_t>(y_.row_stride);
  }

  // Multiplies all rows of the batch by some panels.
  void group(uint32_t panel, uint32_t begin, uint32_t end, float* sums) const {
    each_pass(panel, sums, [&](auto tile, uint32_t panels, bool is_last) HWY_ATTR {
      tile.factors = copies() + size_t{tile.first_term / kDenseDepth} * (end - begin) * kDenseRowStep;
      const bool stores = stores_result(panel, panels);
      if (stores) store_result(tile, begin, panel);
      run_micro_tiles<kAcrossRows>(tile, panels, end - begin, [&](uint32_t row, uint32_t count) HWY_ATTR {
        if (is_last && !stores && !finish_.wants_batches())
          finish(panel, begin + row, count, sums + row * kDenseSumStep);
      });
      if (is_last && finish_.wants_batches()) finish(panel, begin, end - begin, sums);
    });
  }

  // Multiplies few rows by kFewRowPanels panels, which are read as streams.
  void group_of_few(uint32_t panel, uint32_t begin, uint32_t end, float* sums) const {
    if (panel + kFewRowPanels > w_.rows) {
      for (; panel < w_.rows; panel += kDensePanels) group(panel, begin, end, sums);
      return;
    }
    constexpr uint32_t kTermsAhead = 64;
    const size_t sums_step = size_t{end - begin} * kDenseSumStep;
    each_pass(panel, sums, [&](auto tile, uint32_t, bool is_last) HWY_ATTR {
      tile.factors = copies() + size_t{tile.first_term / kDenseDepth} * (end - begin) * kDenseRowStep;
      tile.next = tile.panels + size_t{kTermsAhead} * kPanelRows;
      tile.sums_step = sums_step;
      run_micro_tile_of_few<kAcrossRows>(tile, end - begin);
      if (!is_last) return;
      for (uint32_t p = 0; p < kFewRowPanels; ++p) {
        const uint32_t col = (panel + p) * kPanelRows;
        finish_(col, std::min(kPanelRows, y_.cols - col), begin, end - begin, sums + p * sums_step);
      }
    });
  }

  // Multiplies all positions of a batch of images, row by row, by some panels. Y begins at position `first`.
  void group_of_seen(const SeenRows& seen, const SeenBatch& batch, uint32_t first, uint32_t panel,
                     float* sums) const {
    const uint32_t width = seen.window().out_width;
    each_pass(panel, sums, [&](auto tile, uint32_t panels, bool is_last) HWY_ATTR {
      tile.seen = &seen;
      tile.factor_step = seen.position_step();
      for (uint32_t position = batch.begin, next; position < batch.end; position = next) {
        const uint32_t row = position / width;
        next = std::min(batch.end, (row + 1) * width);
        float* const of_row = sums + (position - batch.begin) * kDenseSumStep;
        tile.sums = of_row;
        tile.factors = copies() + size_t{seen.row_of(batch, row)} * seen.row_step() +
                       (position % width - seen.first_col(batch)) * seen.position_step();
        const bool stores = stores_result(panel, panels);
        if (stores) store_result(tile, position - first, panel);
        run_micro_tiles<kSeen>(tile, panels, next - position, [&](uint32_t i, uint32_t count) HWY_ATTR {
          if (is_last && !stores) finish(panel, position - first + i, count, of_row + i * kDenseSumStep);
        });
      }
    });
  }

  const program::Vertex& v_;
  const FieldView& x_;
  const FieldView& w_;
  const FieldView& y_;
  const uint32_t terms_;
  const DenseRowScratch layout_;
  float* const scratch_;
  const RowFinish finish_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
