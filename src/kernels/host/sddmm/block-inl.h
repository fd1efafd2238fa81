// SDDMM at blocks: dot products of rows of dY and of X, in micro-tiles of at most 4 × 4 rows. The rows of dY
// stream once for each group of rows of X.
#if defined(TESSERA_SDDMM_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SDDMM_BLOCK_INL_H_
#undef TESSERA_SDDMM_BLOCK_INL_H_
#else
#define TESSERA_SDDMM_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/panels-inl.h"
#include "kernels/common/seen-inl.h"
#include "kernels/host/sddmm/dots-inl.h"
#include "kernels/host/sddmm/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A micro-tile's sums in the order of sparse::BlockOrder: kGroup columns of each row are adjacent.
template <int kTileRows, int kTileCols, int kBlockGroup>
struct BlockTile {
  static constexpr int kRows = kTileRows;
  static constexpr int kCols = kTileCols;
  static constexpr int kPiece = kRows * kBlockGroup;  // adjacent sums in a block
  static constexpr int kPieces = kCols / kBlockGroup;
  static constexpr int kPieceStep = 16;  // from one group of columns of a strip to the next

  static constexpr int at(int r, int c) {
    return c / kBlockGroup * kPiece + r * kBlockGroup + c % kBlockGroup;
  }
};

// AVX2 has registers for eight sums.
#if HWY_TARGET == HWY_AVX2
using SmallTile = BlockTile<2, 4, 4>;
using WideTileOfRows = BlockTile<4, 2, 2>;
#else
using SmallTile = BlockTile<4, 4, 4>;
using WideTileOfRows = BlockTile<4, 4, 2>;
#endif

// Columns of both operands, and positions of their rows.
struct RowPanel {
  const float* data;
  int64_t step;
  uint32_t first;  // row at data
  uint32_t rows;   // rows of the matrix: overhanging rows are replaced by the last one

  const float* row(uint32_t i) const { return data + (std::min(i, rows - 1) - first) * step; }

  template <size_t kCount>
  HWY_INLINE void point_at(uint32_t i, const float* (&to)[kCount]) const {
    const float* at = row(i);
    const int64_t by = i + kCount <= rows ? step : 0;
    for (size_t q = 0; q < kCount; ++q, at += by) to[q] = by != 0 ? at : row(i + static_cast<uint32_t>(q));
  }
};

template <class Tile, class Index>
class BlockSddmm {
 public:
  explicit BlockSddmm(const BlockSddmmSlice& slice)
      : slice_(slice),
        w_(slice.weight),
        o_(slice.operands),
        order_(sparse::order_of(w_.block_size)),
        scratch_(slice.schedule, w_, slice.block_row_end - slice.block_row_begin, o_.n,
                 {o_.x.col_stride != 1, o_.dy.col_stride != 1, static_cast<bool>(o_.seen)}),
        next_(reinterpret_cast<uint32_t*>(o_.scratch + scratch_.next)),
        used_(reinterpret_cast<uint8_t*>(o_.scratch + scratch_.used)),
        block_cols_((w_.cols + w_.block_size - 1) / w_.block_size),
        strip_rows_(sddmm_strip_rows(w_.block_size, std::min(scratch_.width, o_.n))),
        fetch_(std::max(1U, Tile::kCols * Tile::kRows / strip_rows_)),
        tile_(tile_fetching<false>(fetch_)),
        tile_with_far_(tile_fetching<true>(fetch_)) {}

  void run() {
    if (w_.rows == 0 || w_.cols == 0) return;
    beta_ = o_.beta;
    if (copies_x()) find_used();
    uint32_t col = 0;
    do {
      pass(col, std::min(scratch_.width, o_.n - col));
      beta_ = 1;
      col += scratch_.width;
    } while (col < o_.n);
  }

 private:
  uint32_t column(uint32_t block) const { return static_cast<const Index*>(w_.columns)[block]; }

  bool copies_x() const { return o_.seen || o_.x.col_stride != 1; }

  void find_used() {
    std::fill(used_, used_ + block_cols_, uint8_t{0});
    const uint32_t end = w_.row_begin[slice_.block_row_end];
    for (uint32_t i = w_.row_begin[slice_.block_row_begin]; i < end; ++i) used_[column(i)] = 1;
  }

  // Some columns of the rows of dY, in place or packed.
  RowPanel y_panel(uint32_t begin, uint32_t end, uint32_t col, uint32_t cols) const {
    if (o_.dy.col_stride == 1) return {&o_.dy(begin, col), o_.dy.row_stride, begin, w_.rows};
    program::enter(o_.clock, program::Phase::rearrange);
    float* to = o_.scratch + scratch_.dy;
    copy_panel_rows(o_.dy, {}, begin, end - begin, end - begin, {col, cols, scratch_.width, to});
    program::enter(o_.clock, program::Phase::compute);
    return {to, scratch_.width, begin, w_.rows};
  }

  // The same of rows of X from block column `first` to before `last`: packed only where there are blocks.
  RowPanel x_panel(uint32_t first, uint32_t last, uint32_t col, uint32_t cols) const {
    const uint32_t b = w_.block_size, begin = first * b;
    if (!copies_x()) return {&o_.x(begin, col), o_.x.row_stride, begin, w_.cols};
    program::enter(o_.clock, program::Phase::rearrange);
    static_assert(kMaxSddmmPanel <= kMaxSeenCols);
    float* to = o_.scratch + scratch_.x;
    for (uint32_t c = first; c < last; ++c) {
      const uint32_t row = c * b;
      while (c < last && used_[c] != 0) ++c;
      if (c * b == row) continue;
      const uint32_t rows = std::min(c * b, w_.cols) - row;
      copy_panel_rows(o_.x, o_.seen, row, rows, rows,
                      {col, cols, scratch_.width, to + size_t{row - begin} * scratch_.width});
    }
    program::enter(o_.clock, program::Phase::compute);
    return {to, scratch_.width, begin, w_.cols};
  }

  void pass(uint32_t col, uint32_t cols) {
    const uint32_t b = w_.block_size;
    const uint32_t first = slice_.block_row_begin, end = slice_.block_row_end;
    std::copy(w_.row_begin + first, w_.row_begin + end, next_);
    y_ = y_panel(first * b, std::min(end * b, w_.rows), col, cols);
    const uint32_t step = std::max(slice_.schedule.group_rows / b, 1U);
    for (uint32_t c = 0; c < block_cols_; c += step) {
      x_ = x_panel(c, std::min(c + step, block_cols_), col, cols);
      schedule_ = DotSplit::of(x_.data, cols);
      const PartSplit rows(first, end, b);
      program::share_work(o_.helpers, rows.parts(), nullptr, [&](uint32_t i, std::byte*) {
        BlockSddmm(*this).block_rows(rows.begin_of(i), rows.end_of(i), c + step);
      });
    }
  }

  void block_rows(uint32_t begin, uint32_t end, uint32_t end_column) {
    end_row_ = end;
    for (uint32_t r = begin; r < end; ++r) block_row(r, end_column);
  }

  // Processes the remaining blocks of the row before block column `end_column`.
  void block_row(uint32_t r, uint32_t end_column) {
    const uint32_t end = w_.row_begin[r + 1];
    uint32_t& i = next_[r - slice_.block_row_begin];
    tiles_ = 0;
    const bool is_last = r + 1 == end_row_;
    uint32_t below = is_last ? end : next_[r + 1 - slice_.block_row_begin];
    const uint32_t end_below = is_last ? end : w_.row_begin[r + 2];
    const auto is_here = [&](uint32_t block, uint32_t end_of_row) {
      return block < end_of_row && column(block) < end_column;
    };
    const uint32_t first_below = is_here(below, end_below) ? below : i;
    for (; is_here(i, end); ++i) {
      const uint32_t after = column(is_here(i + 1, end) ? i + 1 : first_below);
      fetched_ = gradient_of(below < end_below ? below++ : i);
      block(r, i, after);
    }
  }

  float* gradient_of(uint32_t block) const {
    return o_.dw + size_t{w_.slots == nullptr ? block : w_.slots[block]} * order_.block_values();
  }

  using TileFunction = void (*)(const DotRows<Tile::kRows, Tile::kCols>&, const DotSplit&, float*);

  template <bool kFar>
  static TileFunction tile_fetching(uint32_t rows) {
    if (rows == 1) return dot_tile<Tile::kRows, Tile::kCols, Tile, 1, kFar>;
    if (rows == 2) return dot_tile<Tile::kRows, Tile::kCols, Tile, 2, kFar>;
    return dot_tile<Tile::kRows, Tile::kCols, Tile, Tile::kCols, kFar>;
  }

  void block(uint32_t r, uint32_t i, uint32_t column_after) {
    const uint32_t b = w_.block_size;
    float* dw = gradient_of(i);
    const uint32_t x_row = column(i) * b, y_row = r * b;
    for (uint32_t strip = 0; strip < b; strip += strip_rows_)
      for (uint32_t c = 0; c < b; c += Tile::kCols) {
        const uint32_t next = c + Tile::kCols < b       ? x_row + c + Tile::kCols
                              : strip + strip_rows_ < b ? x_row
                                                        : column_after * b;
        column_of_tiles(y_row, strip, x_row + c, next, dw + order_.offset(strip, c));
      }
    if (y_row + b > w_.rows || x_row + b > w_.cols) clear_overhang(r, column(i), dw);
  }

  // Runs the micro-tiles of a strip's rows with rows of X; each prefetches its part of the next rows of X.
  void column_of_tiles(uint32_t y_row, uint32_t strip, uint32_t x_row, uint32_t next, float* dw) {
    DotRows<Tile::kRows, Tile::kCols> rows;
    x_.point_at(x_row, rows.x);
    for (uint32_t row = 0; row < strip_rows_; row += Tile::kRows) {
      y_.point_at(y_row + strip + row, rows.y);
      const uint32_t part = std::min<uint32_t>(row / Tile::kRows * fetch_, Tile::kCols - fetch_);
      for (uint32_t f = 0; f < fetch_; ++f) rows.next[f] = x_.row(next + part + f);
      // Prefetches one row of the next block row per micro-tile: it comes from far away.
      const bool with_far = tiles_ < w_.block_size;
      if (with_far) rows.far = far_row(y_row + w_.block_size + tiles_++);
      __builtin_prefetch(fetched_, 1);
      fetched_ += Tile::kRows * Tile::kCols;
      HWY_ALIGN float totals[Tile::kRows * Tile::kCols];
      (with_far ? tile_with_far_ : tile_)(rows, schedule_, totals);
      finish(totals, dw + order_.offset(row, 0));
    }
  }

  const float* far_row(uint32_t row) const {
    return y_.row(std::min(row, std::min(slice_.block_row_end * w_.block_size, w_.rows) - 1));
  }

  void finish(const float* totals, float* dw) const {
    const hn::CappedTag<float, Tile::kPiece> d;
    const auto alpha = hn::Set(d, o_.alpha);
    const auto beta = hn::Set(d, beta_);
    for (int p = 0; p < Tile::kPieces; ++p)
      for (size_t i = 0; i < Tile::kPiece; i += hn::Lanes(d)) {
        float* to = dw + p * Tile::kPieceStep + i;
        auto value = hn::Mul(alpha, hn::Load(d, totals + p * Tile::kPiece + i));
        if (beta_ != 0) value = hn::MulAdd(beta, hn::LoadU(d, to), value);
        hn::StoreU(value, d, to);
      }
  }

  void clear_overhang(uint32_t block_row, uint32_t block_col, float* dw) const {
    const uint32_t b = w_.block_size;
    for (uint32_t r = 0; r < b; ++r)
      for (uint32_t c = 0; c < b; ++c)
        if (block_row * b + r >= w_.rows || block_col * b + c >= w_.cols) dw[order_.offset(r, c)] = 0;
  }

  const BlockSddmmSlice& slice_;
  const BlockWeight& w_;
  const SddmmOperands& o_;
  const sparse::BlockOrder order_;
  const BlockSddmmScratch scratch_;
  uint32_t* next_;
  uint8_t* used_;
  const uint32_t block_cols_;
  const uint32_t strip_rows_;  // rows of a block's strip, whose rows of dY stay in the L1 cache
  const uint32_t fetch_;       // rows of X that a micro-tile prefetches
  const TileFunction tile_;
  const TileFunction tile_with_far_;
  float beta_ = 0;
  RowPanel y_{};
  RowPanel x_{};
  DotSplit schedule_{};
  uint32_t end_row_ = 0;            // last row of the part of the slice that a thread processes
  uint32_t tiles_ = 0;              // micro-tiles of this block row and group that prefetched a distant row
  const float* fetched_ = nullptr;  // dW of the next block row to prefetch
};

inline void run_block_sddmm(const BlockSddmmSlice& slice) {
  const bool small = slice.weight.block_size == 4;
  if (slice.weight.column_type == Type::u16) {
    small ? BlockSddmm<SmallTile, uint16_t>(slice).run() : BlockSddmm<WideTileOfRows, uint16_t>(slice).run();
  } else {
    small ? BlockSddmm<SmallTile, uint32_t>(slice).run() : BlockSddmm<WideTileOfRows, uint32_t>(slice).run();
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
