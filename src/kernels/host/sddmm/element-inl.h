// SDDMM at single elements: for four products of each of a row group's tasks, dot products over a panel of
// columns, reduced and transposed so that lane t holds the sums of task t, the storage order of dW.
#if defined(TESSERA_SDDMM_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SDDMM_ELEMENT_INL_H_
#undef TESSERA_SDDMM_ELEMENT_INL_H_
#else
#define TESSERA_SDDMM_ELEMENT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/panels-inl.h"
#include "kernels/common/planes-inl.h"
#include "kernels/common/seen-inl.h"
#include "kernels/host/sddmm/dots-inl.h"
#include "kernels/host/sddmm/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using sparse::kRowGroupLanes;
using sparse::RowGroup;

// Rows of X and of dY that have been copied, as wide as the panel.
template <size_t kWidth>
struct CopiedRows {
  const float* x;
  const float* dy;

  HWY_INLINE const float* x_at(uint32_t half_word) const {
    return x + half_word / sparse::kColumnScale * kWidth;
  }
  HWY_INLINE const float* dy_at(size_t row) const { return dy + row * kWidth; }
};

// Rows of X in planes, by the columns of a k-block, and of dY at the same places.
struct RowsInPlanes {
  const float* x;
  const uint32_t* begins;
  const float* dy;
  size_t dy_step;

  HWY_INLINE const float* x_at(uint32_t half_word) const {
    return x + begins[half_word / sparse::kColumnScale];
  }
  HWY_INLINE const float* dy_at(size_t row) const { return dy + row * dy_step; }
};

// A row group's part of dW over a panel of kVectors vectors.
template <size_t kVectors, class Rows>
class RowGroupDots {
 public:
  static constexpr size_t kWidth = kVectors * kDotLanes;

  RowGroupDots(const Rows& rows, uint32_t k_block, float alpha, float beta)
      : rows_(rows), filler_(k_block * sparse::kColumnScale), alpha_(alpha), beta_(beta) {}

  // `next` is the following row group.
  void run(const RowGroup& row_group, const RowGroup& next, const uint32_t* words, float* dw) const {
    constexpr size_t kStep = kRowGroupLanes;
    uint32_t line = 0;
    for (uint32_t s = 0; s < row_group.shared_steps; s += 2, words += kStep, dw += 4 * kStep)
      four<true>(row_group, next, line++, row_group.tasks, words, words, dw, 4);
    for (uint32_t s = 0; s < row_group.unpaired_steps; s += 2, words += 2 * kStep, dw += 4 * kStep) {
      const bool is_last = s + 1 == row_group.unpaired_steps;
      four<false>(row_group, next, line++, tasks_at(row_group, s), words, is_last ? words : words + kStep, dw,
                  is_last ? 2 : 4);
    }
  }

 private:
  // The tasks that have an unpaired step, in whole quarters: the lanes after them hold only filler.
  static uint32_t tasks_at(const RowGroup& row_group, uint32_t step) {
    uint32_t quarters = sparse::kQuarters;
    while (quarters > 0 && row_group.quarter_steps[quarters - 1] <= step) --quarters;
    return std::min<uint32_t>(row_group.tasks, quarters * sparse::kQuarterLanes);
  }

  // Computes four products of each of the first `tasks` tasks. Word `lower` has the columns of the first two
  // products, `upper` the columns of the others; or both rows share the columns in the halves of one word.
  template <bool kShared>
  HWY_INLINE void four(const RowGroup& row_group, const RowGroup& next, uint32_t line, uint32_t tasks,
                       const uint32_t* lower, const uint32_t* upper, float* dw, int products) const {
    for (size_t first = 0; first < kRowGroupLanes; first += kDotLanes) {
      DotVec transposed[4];
#pragma GCC unroll 4
      for (size_t j = 0; j < 4; ++j) {
        DotVec blocks[kDotBlocks];
#pragma GCC unroll 4
        for (size_t q = 0; q < kDotBlocks; ++q) {
          const size_t t = first + 4 * q + j;
          if (t >= tasks) {
            blocks[q] = hn::Zero(DotFloats());
            continue;
          }
          if (line < (kWidth + 15) / 16) {
            hwy::Prefetch(rows_.dy_at(next.row_a[t]) + line * 16);
            hwy::Prefetch(rows_.dy_at(next.row_b[t]) + line * 16);
          }
          blocks[q] = task<kShared>(rows_.dy_at(row_group.row_a[t]), rows_.dy_at(row_group.row_b[t]),
                                    lower[t], upper[t]);
        }
        transposed[j] = add_blocks(blocks);
      }
      transpose_four(DotFloats(), transposed[0], transposed[1], transposed[2], transposed[3]);
      finish<kShared>(transposed, lower + first, upper + first, dw + first, products);
    }
  }

  // In each 128-bit block: a part of the four sums of a task.
  template <bool kShared>
  HWY_INLINE DotVec task(const float* a, const float* b, uint32_t lower, uint32_t upper) const {
    const DotFloats d;
    const float* x0 = rows_.x_at(lower & 0xFFFF);
    const float* x1 = rows_.x_at(lower >> 16);
    const float* x2 = rows_.x_at(upper & 0xFFFF);
    const float* x3 = rows_.x_at(upper >> 16);
    DotVec sum[4];
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) sum[s] = hn::Zero(d);
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = v * kDotLanes;
      const DotVec va = hn::Load(d, a + at);
      const DotVec vb = hn::Load(d, b + at);
      const DotVec v0 = hn::LoadU(d, x0 + at);
      const DotVec v1 = hn::LoadU(d, x1 + at);
      sum[0] = hn::MulAdd(va, v0, sum[0]);
      if constexpr (kShared) {
        sum[1] = hn::MulAdd(vb, v0, sum[1]);
        sum[2] = hn::MulAdd(va, v1, sum[2]);
        sum[3] = hn::MulAdd(vb, v1, sum[3]);
      } else {
        sum[1] = hn::MulAdd(vb, v1, sum[1]);
        sum[2] = hn::MulAdd(va, hn::LoadU(d, x2 + at), sum[2]);
        sum[3] = hn::MulAdd(vb, hn::LoadU(d, x3 + at), sum[3]);
      }
    }
    return totals_in_blocks(sum);
  }

  template <bool kShared>
  HWY_INLINE void finish(const DotVec* sums, const uint32_t* lower, const uint32_t* upper, float* dw,
                         int products) const {
    const DotFloats d;
    const hn::RebindToUnsigned<DotFloats> du;
    const auto filler = hn::Set(du, filler_);
    const auto alpha = hn::Set(d, alpha_);
    const auto beta = hn::Set(d, beta_);
    for (int p = 0; p < products; ++p) {
      const bool high = kShared ? p >= 2 : p % 2 == 1;
      const auto words = hn::LoadU(du, kShared || p < 2 ? lower : upper);
      const auto column = high ? hn::ShiftRight<16>(words) : hn::And(words, hn::Set(du, 0xFFFF));
      float* to = dw + p * kRowGroupLanes;
      auto value = hn::Mul(alpha, sums[p]);
      if (beta_ != 0) value = hn::MulAdd(beta, hn::LoadU(d, to), value);
      // Places without a stored element stay 0, whatever the rows hold.
      value = hn::IfThenElseZero(hn::RebindMask(d, hn::Ne(column, filler)), value);
      hn::StoreU(value, d, to);
    }
  }

  Rows rows_;
  uint32_t filler_;
  float alpha_;
  float beta_;
};

class ElementSddmm {
 public:
  // With planes, X is read in pieces of them.
  ElementSddmm(const ElementSddmmSlice& slice, const Planes* planes)
      : slice_(slice),
        w_(slice.weight),
        o_(slice.operands),
        planes_(planes),
        layout_(slice.schedule, w_, o_.n, planes),
        scratch_(o_.scratch),
        clock_(o_.clock),
        panels_(sddmm_panels(slice.schedule, std::max(o_.n, 1U), static_cast<uint32_t>(kDotLanes))) {}

  void run() const {
    if (planes_ != nullptr) planes_->find_begins(w_.cols, w_.k_block, begins());
    const uint32_t bands = sddmm_bands(w_, slice_.chunk_begin, slice_.chunk_end);
    program::share_work(o_.helpers, bands, scratch_, [&](uint32_t i, std::byte* scratch) {
      const ElementSddmm slice = for_thread(scratch);
      planes_ != nullptr ? slice.run_pieces(band(i)) : slice.run_band(band(i));
    });
  }

 private:
  // Consecutive chunks.
  struct Band {
    uint32_t begin, end;
  };

  Band band(uint32_t i) const {
    uint32_t begin = slice_.chunk_begin;
    for (; i > 0; --i) begin = sddmm_band_end(w_, begin, slice_.chunk_end);
    return {begin, sddmm_band_end(w_, begin, slice_.chunk_end)};
  }

  // In the slice's own scratch.
  uint32_t* begins() const { return reinterpret_cast<uint32_t*>(o_.scratch + layout_.begins); }

  // The slice as processed by the thread with this scratch. A helper's time is not split by phase.
  ElementSddmm for_thread(std::byte* scratch) const {
    ElementSddmm slice = *this;
    slice.scratch_ = reinterpret_cast<float*>(scratch);
    if (slice.scratch_ != scratch_) slice.clock_ = nullptr;
    return slice;
  }

  void run_band(Band band) const {
    const uint32_t step = std::max<uint32_t>(slice_.schedule.group_panels, 1);
    for (uint32_t p = 0; p < panels_.tiles(); p += step)
      run_group(band, p, std::min(p + step, panels_.tiles()));
  }

  // Copies rows of a panel's columns; zeros after the last column and the last row.
  void pack(const MatrixView<const float>& m, const Seen& seen, uint32_t begin, uint32_t rows, uint32_t depth,
            uint32_t panel, float* to) const {
    const auto first = static_cast<uint32_t>(panels_.begin(panel) * kDotLanes);
    const auto last = static_cast<uint32_t>(panels_.begin(panel + 1) * kDotLanes);
    static_assert(kMaxSddmmPanel <= kMaxSeenCols);
    copy_panel_rows(m, seen, begin, rows, depth, {first, std::min(last, o_.n) - first, last - first, to});
  }

  // The rows of dY before a chunk's in a band, with a row of zeros behind each chunk.
  size_t rows_before(Band band, uint32_t chunk) const {
    return w_.chunk_begin[chunk] - w_.chunk_begin[band.begin] + (chunk - band.begin);
  }
  uint32_t rows_of(uint32_t chunk) const { return w_.chunk_begin[chunk + 1] - w_.chunk_begin[chunk]; }

  // A chunk's rows of dY in one of the panels of a group.
  float* dy_of(uint32_t slot, uint32_t panel, Band band, uint32_t chunk) const {
    const size_t width = (panels_.begin(panel + 1) - panels_.begin(panel)) * kDotLanes;
    return scratch_ + layout_.dy + slot * layout_.dy_step + rows_before(band, chunk) * width;
  }

  void run_group(Band band, uint32_t first, uint32_t end) const {
    program::enter(clock_, program::Phase::rearrange);
    for (uint32_t p = first; p < end; ++p)
      for (uint32_t chunk = band.begin; chunk < band.end; ++chunk)
        pack(o_.dy, {}, w_.chunk_begin[chunk], rows_of(chunk), rows_of(chunk) + 1, p,
             dy_of(p - first, p, band, chunk));
    for (uint32_t block = 0; block < w_.k_blocks(); ++block)
      for (uint32_t p = first; p < end; ++p) {
        program::enter(clock_, program::Phase::rearrange);
        const uint32_t column = block * w_.k_block;
        float* x = scratch_ + layout_.x;
        pack(o_.x, o_.seen, column, std::min(w_.k_block, w_.cols - column), w_.k_block + 1, p, x);
        program::enter(clock_, program::Phase::compute);
        const auto vectors = panels_.begin(p + 1) - panels_.begin(p);
        const float beta = p == 0 ? o_.beta : 1;
        for (uint32_t chunk = band.begin; chunk < band.end; ++chunk)
          run_block<kMostVectors>(vectors, chunk, block, [&]<size_t kVectors>() {
            using Rows = CopiedRows<kVectors * kDotLanes>;
            return RowGroupDots<kVectors, Rows>({x, dy_of(p - first, p, band, chunk)}, w_.k_block, o_.alpha,
                                                beta);
          });
      }
  }

  // Pieces of planes of X, and of dY at the same places.
  void run_pieces(Band band) const {
    const Span pieces = planes_->pieces_of(0, o_.n);
    for (uint32_t i = pieces.begin; i < pieces.end; ++i) {
      const Planes::Piece piece = planes_->piece(i);
      program::enter(clock_, program::Phase::rearrange);
      copy_planes(o_.x, *planes_, piece, scratch_ + layout_.x);
      copy_dy(band, piece);
      program::enter(clock_, program::Phase::compute);
      const TileSplit panels{planes_->places(piece) / static_cast<uint32_t>(kDotLanes), panels_.most};
      for (uint32_t p = 0; p < panels.tiles(); ++p)
        run_places(band, panels.begin(p), panels.begin(p + 1), i == pieces.begin && p == 0 ? o_.beta : 1);
    }
  }

  float* dy_rows_of(Band band, uint32_t chunk) const {
    return scratch_ + layout_.dy + rows_before(band, chunk) * layout_.dy_step;
  }

  void copy_dy(Band band, const Planes::Piece& piece) const {
    // The part's columns begin with a position of their own.
    MatrixView<const float> dy = o_.dy;
    dy.data -= o_.seen.first;
    const PlaneCopy copy(dy, planes_->over_results(), *planes_, piece, piece.rows, 0);
    for (uint32_t chunk = band.begin; chunk < band.end; ++chunk) {
      float* const to = dy_rows_of(band, chunk);
      copy.copy(w_.chunk_begin[chunk], rows_of(chunk), to, layout_.dy_step);
      std::fill_n(to + rows_of(chunk) * layout_.dy_step, layout_.dy_step, 0.0F);
    }
  }

  void run_places(Band band, uint32_t begin, uint32_t end, float beta) const {
    const float* x = scratch_ + layout_.x + begin * kDotLanes;
    for (uint32_t block = 0; block < w_.k_blocks(); ++block)
      for (uint32_t chunk = band.begin; chunk < band.end; ++chunk) {
        const RowsInPlanes rows{x, begins() + block * (w_.k_block + size_t{1}),
                                dy_rows_of(band, chunk) + begin * kDotLanes, layout_.dy_step};
        run_block<kMostVectors>(end - begin, chunk, block, [&]<size_t kVectors>() {
          return RowGroupDots<kVectors, RowsInPlanes>(rows, w_.k_block, o_.alpha, beta);
        });
      }
  }

  // Runs a chunk's k-block by the dots of `vectors` vectors.
  template <size_t kVectors, class Dots>
  void run_block(size_t vectors, uint32_t chunk, uint32_t block, const Dots& dots_of) const {
    if constexpr (kVectors > 0) {
      if (vectors < kVectors) return run_block<kVectors - 1>(vectors, chunk, block, dots_of);
      const auto dots = dots_of.template operator()<kVectors>();
      const sparse::ElementBlock* at = w_.blocks + uint64_t{chunk} * w_.k_blocks() + block;
      const uint32_t* words = w_.indices + at->index;
      float* dw = o_.dw + at->value;
      for (uint64_t i = at[0].row_group; i < at[1].row_group; ++i) {
        const RowGroup& row_group = w_.row_groups[i];
        dots.run(row_group, i + 1 < at[1].row_group ? w_.row_groups[i + 1] : row_group, words, dw);
        dw += row_group.value_count();
        words += row_group.index_count();
      }
    }
  }

  static constexpr size_t kMostVectors = kMaxSddmmPanel / kDotLanes;

  const ElementSddmmSlice& slice_;
  const ElementWeight& w_;
  const SddmmOperands& o_;
  const Planes* planes_;
  const ElementSddmmScratch layout_;
  float* scratch_;  // scratch of the running thread
  program::PhaseClock* clock_;
  const TileSplit panels_;
};

inline void run_element_sddmm(const ElementSddmmSlice& slice) {
  if (!uses_planes(slice)) return ElementSddmm(slice, nullptr).run();
  const Planes planes(slice.operands.seen);
  ElementSddmm(slice, &planes).run();
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
