// The gradient at blocks: dot products of rows of dY and of X, in tiles of 4 × 4 rows or less.
// Groups of rows of X stay in the L2 cache while the rows of dY stream by.
#if defined(TESSERA_SDDMM_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SDDMM_BLOCK_INL_H_
#undef TESSERA_SDDMM_BLOCK_INL_H_
#else
#define TESSERA_SDDMM_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/block_sparse/pack-inl.h"
#include "kernels/sddmm/dots-inl.h"
#include "kernels/sddmm/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A tile's sums in the order of sparse::BlockOrder: kGroup columns of each row side by side.
template <int kTileRows, int kTileCols, int kBlockGroup>
struct BlockTile {
  static constexpr int kRows = kTileRows;
  static constexpr int kCols = kTileCols;
  static constexpr int kPiece = kRows * kBlockGroup;  // sums that stand side by side in a block
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

// Columns of both operands, and where their rows are.
struct RowPanel {
  const float* data;
  int64_t step;
  uint32_t first;  // row at data
  uint32_t rows;   // of the matrix: what overhangs it takes the last one

  const float* row(uint32_t i) const { return data + (std::min(i, rows - 1) - first) * step; }

  template <size_t kCount>
  HWY_INLINE void take(uint32_t i, const float* (&to)[kCount]) const {
    const float* at = row(i);
    const int64_t by = i + kCount <= rows ? step : 0;
    for (size_t q = 0; q < kCount; ++q, at += by)
      to[q] = by != 0 ? at : row(i + static_cast<uint32_t>(q));
  }
};

template <class Tile, class Index>
class BlockSddmm {
 public:
  explicit BlockSddmm(const BlockSddmmShare& share)
      : share_(share),
        w_(share.weight),
        o_(share.operands),
        order_(sparse::order_of(w_.block_size)),
        scratch_(share.cut, w_, share.block_row_end - share.block_row_begin, o_.n,
                 {o_.x.col_stride != 1, o_.dy.col_stride != 1}),
        next_(reinterpret_cast<uint32_t*>(o_.scratch + scratch_.next)) {
    // Two thirds of an L1 cache; the rest is for rows of X.
    constexpr uint32_t kStripFloats = 8192;
    strip_rows_ = w_.block_size;
    while (strip_rows_ > Tile::kRows && strip_rows_ * std::min(scratch_.width, o_.n) > kStripFloats)
      strip_rows_ /= 2;
  }

  void run() {
    if (w_.rows == 0 || w_.cols == 0) return;
    beta_ = o_.beta;
    uint32_t col = 0;
    do {
      pass(col, std::min(scratch_.width, o_.n - col));
      beta_ = 1;
      col += scratch_.width;
    } while (col < o_.n);
  }

 private:
  void enter(program::Phase phase) const {
    if (o_.clock != nullptr) o_.clock->enter(phase);
  }

  uint32_t column(uint32_t block) const { return static_cast<const Index*>(w_.columns)[block]; }

  // Rows of some columns of a matrix, where they are or packed to `to`.
  RowPanel panel_of(MatrixView<const float> m, uint32_t all_rows, uint32_t begin, uint32_t end,
                    uint32_t col, uint32_t cols, float* to) const {
    if (m.col_stride == 1) return {&m(begin, col), m.row_stride, begin, all_rows};
    enter(program::Phase::pack);
    m.data += begin * m.row_stride;
    pack_tile(m, end - begin, end - begin, {col, cols, scratch_.width, to});
    enter(program::Phase::compute);
    return {to, scratch_.width, begin, all_rows};
  }

  void pass(uint32_t col, uint32_t cols) {
    const uint32_t b = w_.block_size;
    const uint32_t first = share_.block_row_begin, end = share_.block_row_end;
    std::copy(w_.row_begin + first, w_.row_begin + end, next_);
    y_ = panel_of(o_.dy, w_.rows, first * b, std::min(end * b, w_.rows), col, cols,
                  o_.scratch + scratch_.dy);
    const uint32_t step = std::max(share_.cut.group_rows / b, 1U);
    for (uint32_t c = 0; c * b < w_.cols; c += step) {
      x_ = panel_of(o_.x, w_.cols, c * b, std::min((c + step) * b, w_.cols), col, cols,
                    o_.scratch + scratch_.x);
      cut_ = DotCut::of(x_.data, cols);
      for (uint32_t r = first; r < end; ++r) block_row(r, c + step);
    }
  }

  // The blocks of a row that lie before block column `end_column` and are still to be done.
  void block_row(uint32_t r, uint32_t end_column) {
    const uint32_t end = w_.row_begin[r + 1];
    uint32_t& i = next_[r - share_.block_row_begin];
    tiles_ = 0;
    uint32_t below = r + 1 < share_.block_row_end ? next_[r + 1 - share_.block_row_begin] : end;
    const uint32_t end_below = r + 1 < share_.block_row_end ? w_.row_begin[r + 2] : end;
    for (; i < end && column(i) < end_column; ++i) {
      const uint32_t after = i + 1 < end && column(i + 1) < end_column ? column(i + 1) : column(i);
      fetched_ = gradient_of(below < end_below ? below++ : i);
      block(r, i, after);
    }
  }

  float* gradient_of(uint32_t block) const {
    return o_.dw + size_t{w_.slots == nullptr ? block : w_.slots[block]} * order_.block_values();
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
        for (uint32_t row = strip; row < strip + strip_rows_; row += Tile::kRows) {
          DotRows<Tile::kRows, Tile::kCols> rows;
          y_.take(y_row + row, rows.y);
          x_.take(x_row + c, rows.x);
          rows.far = far_row(y_row);
          __builtin_prefetch(fetched_, 1);
          fetched_ += Tile::kRows * Tile::kCols;
          HWY_ALIGN float totals[Tile::kRows * Tile::kCols];
          if (row == strip) {
            x_.take(next, rows.next);
            dot_tile<Tile::kRows, Tile::kCols, Tile, true>(rows, cut_, totals);
          } else {
            dot_tile<Tile::kRows, Tile::kCols, Tile, false>(rows, cut_, totals);
          }
          finish(totals, dw + order_.offset(row, c));
        }
      }
    if (y_row + b > w_.rows || x_row + b > w_.cols) clear_overhang(r, column(i), dw);
  }

  // A row of the next block row for each tile: it comes from far.
  const float* far_row(uint32_t y_row) {
    const uint32_t row = y_row + w_.block_size + std::min(tiles_++, w_.block_size - 1);
    return y_.row(std::min(row, std::min(share_.block_row_end * w_.block_size, w_.rows) - 1));
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
        if (block_row * b + r >= w_.rows || block_col * b + c >= w_.cols)
          dw[order_.offset(r, c)] = 0;
  }

  const BlockSddmmShare& share_;
  const BlockWeight& w_;
  const SddmmOperands& o_;
  const sparse::BlockOrder order_;
  const BlockSddmmScratch scratch_;
  uint32_t* next_;
  float beta_ = 0;
  RowPanel y_{};
  RowPanel x_{};
  DotCut cut_{};
  uint32_t strip_rows_ = 4;         // of a block, whose rows of dY stay in the L1 cache
  uint32_t tiles_ = 0;              // of this block row in this group
  const float* fetched_ = nullptr;  // dW of the next block row that is prefetched
};

inline void run_block_sddmm(const BlockSddmmShare& share) {
  const bool small = share.weight.block_size == 4;
  if (share.weight.column_type == Type::u16) {
    small ? BlockSddmm<SmallTile, uint16_t>(share).run()
          : BlockSddmm<WideTileOfRows, uint16_t>(share).run();
  } else {
    small ? BlockSddmm<SmallTile, uint32_t>(share).run()
          : BlockSddmm<WideTileOfRows, uint32_t>(share).run();
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
