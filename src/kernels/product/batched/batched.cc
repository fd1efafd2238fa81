// Batched products on vectors. Their bits depend only on the operands and the instruction set, not on how the
// product is partitioned.
#include "base/simd.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/thread_buffer.h"
#include "kernels/product/batched/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/product/batched/batched.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/product/lines-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
namespace {

// Rows of y that are processed together: their part of a stays in the L2 cache.
constexpr uint32_t kBatchedRows = 384;
// Terms of a sum that are added in one pass: two panels of b stay in the L1 cache.
constexpr uint32_t kBatchedDepth = 256;

// Vectors lie along the columns of y; the elements of a are factors.
class BatchedProduct {
 public:
  explicit BatchedProduct(const program::Vertex& v)
      : sizes_(v), cols_(v.fields[batched_product_field::y].cols) {
    const uint32_t rows =
        std::min(kBatchedRows, round_up(v.fields[batched_product_field::y].rows, kPanelRows));
    const size_t panels = size_t{kDensePanels} * kBatchedDepth * kPanelRows;
    const size_t sums = size_t{kDensePanels} * rows * kPanelRows;
    panels_ = thread_buffer(panels + sums + size_t{sizes_.terms()} * rows);
    sums_ = panels_ + panels;
    factors_ = sums_ + sums;
  }

  void run() {
    for (uint32_t i = 0; i < sizes_.matrices(); ++i) {
      const BatchedPart part = sizes_.part(i);
      for (uint32_t row = 0; row < part.y.rows; row += kBatchedRows)
        multiply(part, row, std::min(kBatchedRows, part.y.rows - row));
    }
  }

 private:
  void multiply(const BatchedPart& part, uint32_t row, uint32_t rows) {
    const uint32_t terms = sizes_.terms(), step = round_up(rows, kPanelRows);
    copy_terms(sizes_.transposes_a() ? col_lines(part.a, 0, terms, part.row + row, rows)
                                     : row_lines(part.a, row, rows, 0, terms),
               factors_, step);
    const Lines of_b = sizes_.transposes_b() ? row_lines(part.b, sizes_.col(), cols_, 0, terms)
                                             : col_lines(part.b, 0, terms, 0, cols_);
    for (uint32_t col = 0; col < cols_; col += kDenseSumStep) {
      const uint32_t cols = std::min(kDenseSumStep, cols_ - col);
      uint32_t term = 0;
      do {
        const uint32_t depth = std::min(kBatchedDepth, terms - term);
        add(of_b.part(col, cols, term, depth), factors_ + size_t{term} * step, rows, term > 0);
        term += depth;
      } while (term < terms);
      store(part.y, row, rows, col, cols);
    }
  }

  void add(const Lines& of_b, const float* factors, uint32_t rows, bool adds) {
    copy_panels(of_b, panels_);
    const size_t step = round_up(rows, kPanelRows);
    run_micro_tiles<kAlongRow>(MicroTile<float>{panels_, size_t{of_b.terms} * kPanelRows, factors, step,
                                                of_b.terms, sums_, step * kPanelRows, adds, panels_},
                               (of_b.lines + kPanelRows - 1) / kPanelRows, rows, [](uint32_t, uint32_t) {});
  }

  void store(const FieldView& y, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols) const {
    const PanelFloats d;
    const size_t panel = size_t{round_up(rows, kPanelRows)} * kPanelRows;
    with_float_type(y.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t r = 0; r < rows; ++r) {
        T* to = row_of<T>(y, row + r) + col;
        each_vector(cols, [&](size_t i, size_t count) HWY_ATTR {
          const float* from = sums_ + i / kPanelRows * panel + r * kPanelRows + i % kPanelRows;
          store_some(hn::LoadU(d, from), to + i, count);
        });
      }
    });
  }

  BatchedSizes sizes_;
  uint32_t cols_;
  float* panels_;   // of b: [panel][term][kPanelRows]
  float* sums_;     // [panel][row][kPanelRows]
  float* factors_;  // of a, transposed: [term][row]
};

}  // namespace

void run_batched_product(const program::Vertex& v) { BatchedProduct(v).run(); }
#else
TESSERA_BATCHED_CODELETS(TESSERA_RUN_REFERENCE)
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_BATCHED_CODELETS(TESSERA_DISPATCH_RUN)

}  // namespace tessera::kernels
#endif
