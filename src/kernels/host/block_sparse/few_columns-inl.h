// The few-column kernel: vectors along the rows of Y. W streams through once at full bandwidth.
#if defined(TESSERA_BLOCK_SPARSE_FEW_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BLOCK_SPARSE_FEW_COLUMNS_INL_H_
#undef TESSERA_BLOCK_SPARSE_FEW_COLUMNS_INL_H_
#else
#define TESSERA_BLOCK_SPARSE_FEW_COLUMNS_INL_H_
#endif

#include "kernels/host/block_sparse/few_columns_transposed-inl.h"
#include "kernels/host/block_sparse/finish-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// Processes one slice with the few-column kernel. T is the type of the values, which belong to the transpose
// if kTransposed; Index is the type of the columns.
template <class T, class Index, bool kTransposed>
class FewColumnSlice {
 public:
  explicit FewColumnSlice(const BlockSlice& slice)
      : slice_(slice),
        w_(slice.weight),
        order_(sparse::order_of(w_.block_size)),
        cols_(slice.col_end - slice.col_begin),
        scratch_(w_.cols, w_.block_size, cols_, kTransposed) {}

  void run() {
    if (cols_ == 0) return;
    tiles_ = {cols_, static_cast<uint32_t>(kTransposed ? kTransposedTileCols : kFewColumnTileCols)};
    program::enter(slice_.clock, program::Phase::rearrange);
    for (uint32_t t = 0; t < tiles_.tiles(); ++t) pack(t);
    program::enter(slice_.clock, program::Phase::compute);
    const PartSplit rows(slice_.block_row_begin, slice_.block_row_end, w_.block_size);
    program::share_work(slice_.helpers, rows.parts(), slice_.scratch, [&](uint32_t i, std::byte* scratch) {
      for (uint32_t r = rows.begin_of(i); r < rows.end_of(i); ++r)
        block_row(r, reinterpret_cast<float*>(scratch));
    });
  }

 private:
  uint32_t tile_cols(uint32_t t) const { return tiles_.begin(t + 1) - tiles_.begin(t); }

  float* panel_of(uint32_t t) const {
    return slice_.scratch + scratch_.panel +
           size_t{tiles_.begin(t)} * padded_k(w_) * (kTransposed ? order_.group : 1);
  }

  void pack(uint32_t t) const {
    const MatrixView<const float> x{slice_.x.pointer_to(0, slice_.col_begin + tiles_.begin(t)),
                                    slice_.x.row_stride, slice_.x.col_stride};
    const auto pack = kTransposed ? (order_.group == 4 ? pack_repeated<4> : pack_repeated<2>)
                                  : (order_.group == 4 ? pack_groups<4> : pack_groups<2>);
    pack(x, w_.cols, padded_k(w_), tile_cols(t), panel_of(t));
  }

  // `scratch` belongs to the running thread; the panel of X is in the slice's scratch.
  void block_row(uint32_t block_row, float* scratch) const {
    const uint32_t begin = w_.row_begin[block_row];
    const uint32_t row = block_row * w_.block_size;
    const uint32_t rows = std::min(w_.block_size, w_.rows - row);
    const uint32_t strips = (rows + order_.strip_rows - 1) / order_.strip_rows;
    float* results = scratch + scratch_.results;
    const size_t first = w_.slots == nullptr ? begin : 0;
    FewColumnTile<T, Index> tile{static_cast<const T*>(w_.values) + first * order_.block_values(),
                                 static_cast<const Index*>(w_.columns) + begin,
                                 w_.slots == nullptr ? nullptr : w_.slots + begin,
                                 w_.row_begin[block_row + 1] - begin,
                                 w_.row_begin[slice_.block_row_end] - begin - 1,
                                 w_.block_size,
                                 nullptr,
                                 results};
    const T* values = tile.w;
    for (uint32_t t = 0; t < tiles_.tiles(); ++t) {
      tile.x = panel_of(t);
      uint32_t s = 0;
      while (s < strips) {
        const uint32_t step = strips_at_once(tile_cols(t), strips - s);
        tile.w = values +
                 s * (kTransposed ? size_t{order_.strip_rows} * order_.strip_rows : order_.strip_values());
        tile.y = results + s * order_.strip_rows;
        run_tile(tile, step, tile_cols(t));
        s += step;
      }
      finish({row, slice_.col_begin + tiles_.begin(t), rows, tile_cols(t)}, results,
             scratch + scratch_.by_rows);
    }
  }

  static uint32_t strips_at_once(uint32_t cols, uint32_t left) {
    if (kTransposed) return 1;
    const uint32_t fit = kFewColumnSums / (kGroupVectors * cols);
    return fit >= 4 && left >= 4 ? 4 : fit >= 2 && left >= 2 ? 2 : 1;
  }

  void run_tile(const FewColumnTile<T, Index>& tile, uint32_t strips, uint32_t cols) const {
    if constexpr (kTransposed) {
      using Cols = std::make_integer_sequence<int, kTransposedTileCols>;
      return (order_.group == 4 ? few_column_transposed_function<T, Index, 4>(cols, Cols())
                                : few_column_transposed_function<T, Index, 2>(cols, Cols()))(tile);
    } else {
      run_forward_tile(tile, strips, cols);
    }
  }

  void run_forward_tile(const FewColumnTile<T, Index>& tile, uint32_t strips, uint32_t cols) const {
    using All = std::make_integer_sequence<int, kFewColumnTileCols>;
    using Half = std::make_integer_sequence<int, std::max<int>(1, kFewColumnSums / (2 * kGroupVectors))>;
    using Quarter = std::make_integer_sequence<int, std::max<int>(1, kFewColumnSums / (4 * kGroupVectors))>;
    if (order_.group == 4) {
      few_column_function<T, Index, 1, 4>(cols, All())(tile);
    } else if (strips == 1) {
      few_column_function<T, Index, 1, 2>(cols, All())(tile);
    } else if (strips == 2) {
      few_column_function<T, Index, 2, 2>(cols, Half())(tile);
    } else {
      few_column_function<T, Index, 4, 2>(cols, Quarter())(tile);
    }
  }

  void finish(const Piece& piece, const float* results, float* transposed) const {
    if (slice_.y.row_stride == 1) {
      finish_by_columns(slice_, piece, results, kChunkRows);
    } else {
      transpose(results, kChunkRows, piece.cols, piece.rows, transposed, kFewColumns);
      finish_by_rows(slice_, piece, transposed, kFewColumns);
    }
  }

  const BlockSlice& slice_;
  const BlockWeight& w_;
  const sparse::BlockOrder order_;
  const uint32_t cols_;
  const FewColumnScratch scratch_;
  TileSplit tiles_{};
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
