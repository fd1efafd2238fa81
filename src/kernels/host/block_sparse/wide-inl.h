// The wide kernel: vectors along the columns of Y. Panels of X that fit the L2 cache stay while W streams,
// strip by strip.
#if defined(TESSERA_BLOCK_SPARSE_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BLOCK_SPARSE_WIDE_INL_H_
#undef TESSERA_BLOCK_SPARSE_WIDE_INL_H_
#else
#define TESSERA_BLOCK_SPARSE_WIDE_INL_H_
#endif

#include <algorithm>
#include <numeric>

#include "kernels/common/columns-inl.h"
#include "kernels/common/seen-inl.h"
#include "kernels/host/block_sparse/finish-inl.h"
#include "kernels/host/block_sparse/wide_table-inl.h"
#include "kernels/host/block_sparse/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// Processes one slice with the wide kernel. T is the type of the values, which belong to the transpose if
// kTransposed.
template <class T, bool kTransposed>
class WideSlice {
 public:
  explicit WideSlice(const BlockSlice& slice)
      : slice_(slice),
        w_(slice.weight),
        order_(sparse::order_of(w_.block_size)),
        scratch_(slice.schedule, w_.cols, w_.block_size, slice.col_end - slice.col_begin),
        lists_(slice.scratch),
        micro_rows_(std::min<uint32_t>(slice.schedule.micro_rows == 4 ? 4 : 8, order_.strip_rows)),
        micro_vectors_(std::clamp<uint32_t>(slice.schedule.micro_vectors, 1, most_vectors(micro_rows_))) {}

  void run() {
    number();
    const TileSplit panels = panels_of(slice_.schedule, slice_.col_end - slice_.col_begin);
    row_rotation_ = rotation_of_y();
    for (uint32_t i = 0; i < panels.tiles(); ++i) {
      const uint32_t begin = slice_.col_begin + panels.begin(i) * kMaxLanes;
      const uint32_t end = slice_.col_begin + panels.begin(i + 1) * kMaxLanes;
      panel_ = panel_of(begin, std::min(end, slice_.col_end) - begin);
      run_panel();
    }
  }

 private:
  struct Blocks {
    const T* values;  // in slot 0
    size_t count;
    const uint32_t* columns;
    const uint32_t* slots;
  };

  struct Strip {
    const float* values;  // in slot 0
    size_t block_step;
    size_t depth_step;
    const uint32_t* slots;
    const T* bits16;  // not null: the first micro-tile must widen it
  };

  // Columns of Y whose part of X stays in the L2 cache.
  struct Panel {
    uint32_t begin = 0;
    uint32_t cols = 0;
    int64_t col = 0;     // first column, minus the rotation
    uint32_t width = 0;  // a multiple of whole vectors
    TileSplit tiles{};
    bool packed = true;
    bool shifted = false;  // images are read where they are
    Rotation rotation{};   // rotation of the first micro-tile
  };

  Panel panel_of(uint32_t begin, uint32_t cols) const {
    Panel p;
    p.begin = begin;
    p.cols = cols;
    p.col = int64_t{begin} - row_rotation_.columns;
    p.tiles = {static_cast<uint32_t>((cols + kLanes - 1) / kLanes), micro_vectors_};
    p.width = static_cast<uint32_t>(p.tiles.vectors * kLanes);
    const Rotation in_place = rotation_in_place(p);
    p.shifted = kHasMasks && !slice_.schedule.copy_x && slice_.seen && slice_.x.col_stride == 1 &&
                can_shift(slice_.seen, w_.block_size, slice_.x.row_stride);
    p.packed = !p.shifted && (slice_.schedule.copy_x || !can_stay(p, in_place));
    if (p.packed && begin == slice_.col_begin) p.rotation = row_rotation_;
    if (!p.packed && !p.shifted) {
      p.rotation = in_place;
      p.col -= in_place.columns;
    }
    return p;
  }

  void run_panel() {
    widening_tile_ = nullptr;
    if (panel_.packed)
      widening_tile_ =
          widening_tile_function<kTransposed, T>(w_.block_size == 4, micro_rows_, panel_.tiles.begin(1));
    if (panel_.packed) pack();
    if (panel_.shifted) find_rows();
    const bool is_whole = panel_.cols == panel_.width, adds = slice_.epilogue.beta != 0;
    direct_ = slice_.y.col_stride == 1 && is_bounded_sum(slice_.epilogue) && (is_whole || !adds);
    // Rows rotated in place are short: the lines they share with neighbours should stay in the caches.
    const bool shares_lines = !panel_.packed && panel_.rotation.columns != 0;
    stream_ = slice_.schedule.stream_y &&
              (slice_.y.col_stride == 1
                   ? direct_ && is_whole && !adds && !shares_lines && is_aligned(slice_.y, panel_.col)
                   : streams_columns(slice_.y, slice_.epilogue));
    // Otherwise the stores are early enough, and prefetching costs up to 3 %.
    fetch_y_ = !stream_ && kLanes == kMaxLanes && w_.block_size <= 8 && slice_.y.row_stride > panel_.width;
    const PartSplit rows(slice_.block_row_begin, slice_.block_row_end, w_.block_size);
    program::share_work(slice_.helpers, rows.parts(), lists_, [&](uint32_t i, std::byte* scratch) {
      for_thread(scratch).block_rows(rows.begin_of(i), rows.end_of(i));
    });
  }

  // The slice as processed by the thread with this scratch; all share the panel of X.
  WideSlice for_thread(std::byte* scratch) const {
    WideSlice slice = *this;
    slice.lists_ = reinterpret_cast<float*>(scratch);
    if (slice.lists_ != lists_) slice.number();
    return slice;
  }

  void number() { std::iota(list(scratch_.numbers), list(scratch_.numbers + scratch_.list), 0U); }

  void pack() const {
    program::enter(slice_.clock, program::Phase::rearrange);
    const PartSplit rows(0, w_.cols, 1);
    program::share_work(slice_.helpers, rows.parts(), nullptr, [&](uint32_t i, std::byte*) {
      for (uint32_t t = 0; t < panel_.tiles.tiles(); ++t) pack_rows_of(t, rows.begin_of(i), rows.end_of(i));
    });
    program::enter(slice_.clock, program::Phase::compute);
  }

  // Copies rows of X for micro-tile t of the panel, with zeros after the last row for the overhang of its
  // block.
  void pack_rows_of(uint32_t t, uint32_t begin, uint32_t end) const {
    const uint32_t first = first_col(t), last = first_col(t + 1);
    const uint32_t depth = end == w_.cols ? padded_k(w_) : end;
    copy_panel_rows(slice_.x, slice_.seen, begin, end - begin, depth - begin,
                    {panel_.col + first, std::min(last, panel_.cols) - first, last - first,
                     panel_x(first) + size_t{begin} * (last - first), rotation_of(t)});
  }

  // For images that are read in place, instead of a packed panel: masks of each tap for the panel's columns,
  // and by block column, where its rows and its masks begin.
  struct ShiftedRows {
    uint32_t* begins;
    uint32_t* masks;
    uint8_t* bits;
  };
  ShiftedRows shifted_rows() const {
    const uint32_t block_cols = w_.cols / w_.block_size;
    auto* const begins = reinterpret_cast<uint32_t*>(slice_.scratch + scratch_.panel);
    return {begins, begins + block_cols, reinterpret_cast<uint8_t*>(begins + size_t{2} * block_cols)};
  }

  void find_rows() const {
    const Seen& seen = slice_.seen;
    const ShiftedRows rows = shifted_rows();
    const auto of_tap = static_cast<uint32_t>(panel_.tiles.vectors * mask_bytes(kLanes));
    for (uint32_t tap = 0; tap < seen.window.taps(); ++tap)
      mask_tap(seen.window, tap, seen.first + panel_.begin, panel_.cols, kLanes, rows.bits + tap * of_tap);
    for (uint32_t i = 0; i < w_.cols / w_.block_size; ++i) {
      const uint32_t tap = i * w_.block_size / seen.channels, channel = i * w_.block_size % seen.channels;
      const int64_t begin = channel * slice_.x.row_stride + seen.window.shift_of(tap);
      rows.begins[i] = static_cast<uint32_t>(static_cast<int32_t>(begin));
      rows.masks[i] = tap * of_tap;
    }
  }

  void block_rows(uint32_t begin, uint32_t end) {
    chunk_row_ = first_row(begin);
    for (uint32_t r = begin; r < end; ++r) block_row(r);
    flush(first_row(end));
  }

  // First column of micro-tile t of the panel.
  uint32_t first_col(uint32_t t) const { return static_cast<uint32_t>(panel_.tiles.begin(t) * kLanes); }

  Rotation rotation_of(uint32_t t) const { return t == 0 ? panel_.rotation : Rotation{}; }

  float* panel_x(uint32_t first_col) const {
    return slice_.scratch + scratch_.panel + size_t{first_col} * padded_k(w_);
  }

  uint32_t first_row(uint32_t block_row) const { return std::min(block_row * w_.block_size, w_.rows); }

  template <class Element>
  bool is_aligned(const MatrixView<Element>& view, int64_t col) const {
    const auto first = reinterpret_cast<uintptr_t>(view.pointer_to(0, col));
    return first % (kLanes * sizeof(float)) == 0 && view.row_stride % kLanes == 0;
  }

  // Rotation of rows of Y for non-temporal stores: only if X is packed, so that it can be rotated on the way,
  // and all of Y is written directly.
  Rotation rotation_of_y() const {
    const bool packs = slice_.schedule.copy_x && !slice_.seen && slice_.x.col_stride == 1;
    const bool is_direct = is_plain(slice_.epilogue) && w_.rows % micro_rows_ == 0;
    if (!slice_.schedule.stream_y || !packs || !is_direct) return {};
    return rotation_to_align(slice_.y, slice_.col_begin, slice_.col_end - slice_.col_begin);
  }

  // Rotation of rows for reading X in place as aligned vectors.
  Rotation rotation_in_place(const Panel& p) const {
    if (!can_rotate(kLanes, micro_rows_, p.width) || slice_.x.row_stride % kLanes != 0 || p.cols != p.width)
      return {0, p.width};
    return {columns_past_vector(slice_.x.pointer_to(0, p.col)), p.width};
  }

  // Whether X may be read in place: whole vectors, or masks, no overhang below. Vectors that cross cache
  // lines or are in two parts cost more than a copy, unless they are read few times.
  bool can_stay(const Panel& p, const Rotation& in_place) const {
    return !slice_.seen && slice_.x.col_stride == 1 && (kHasMasks || p.cols == p.width) &&
           w_.cols % w_.block_size == 0 &&
           (is_aligned(slice_.x, p.col) ||
            reads_of_x(slice_, micro_rows_) < reads_worth_a_copy(in_place.columns != 0, w_.block_size));
  }

  void block_row(uint32_t block_row) {
    Blocks blocks = blocks_of_row(block_row);
    uint32_t row = first_row(block_row);
    const uint32_t end = first_row(block_row + 1);
    for (; row < end; row += order_.strip_rows, blocks.values += strip_step()) {
      Strip strip = strip_of(blocks);
      for (uint32_t r = 0; r < order_.strip_rows && row + r < end; r += micro_rows_) {
        tiles(strip, blocks, row + r);
        strip.bits16 = nullptr;
        strip.values += micro_rows_ * (kTransposed ? kGroupValues / order_.group : order_.group);
      }
    }
  }

  // Distance of a block's strips, in values. A strip of 8 columns is spread over the strips of rows.
  size_t strip_step() const {
    return kTransposed ? size_t{order_.strip_rows} * order_.strip_rows : order_.strip_values();
  }
  StripPart strip_part() const {
    if (kTransposed) return {strip_step(), order_.strip_values()};
    return {order_.strip_values(), order_.strip_values()};
  }

  uint32_t* list(size_t at) const { return reinterpret_cast<uint32_t*>(lists_ + at); }

  Blocks blocks_of_row(uint32_t block_row) const {
    const uint32_t begin = w_.row_begin[block_row];
    const uint32_t count = w_.row_begin[block_row + 1] - begin;
    const T* values = static_cast<const T*>(w_.values);
    if (w_.slots == nullptr)
      return {values + size_t{begin} * order_.block_values(), count, columns_of(begin, count),
              list(scratch_.numbers)};
    return {values, count, columns_of(begin, count), slots_of(begin, count)};
  }

  // Micro-tiles look some blocks ahead, so the list continues past the row's last block.
  const uint32_t* columns_of(uint32_t begin, uint32_t count) const {
    uint32_t* columns = list(scratch_.columns);
    if (w_.column_type == Type::u16) {
      std::copy_n(static_cast<const uint16_t*>(w_.columns) + begin, count, columns);
    } else {
      std::copy_n(static_cast<const uint32_t*>(w_.columns) + begin, count, columns);
    }
    std::fill_n(columns + count, kMostBlocksAhead, 0U);
    if (!panel_.shifted) return columns;
    const ShiftedRows rows = shifted_rows();
    uint32_t* masks = list(scratch_.masks);
    for (uint32_t i = 0; i < count; ++i) {
      masks[i] = rows.masks[columns[i]];
      columns[i] = rows.begins[columns[i]];
    }
    return columns;
  }

  const uint32_t* slots_of(uint32_t begin, uint32_t count) const {
    uint32_t* slots = list(scratch_.slots);
    const uint32_t left = w_.row_begin[slice_.block_row_end] - begin;
    const uint32_t known = std::min(left, count + kMostSlotsAhead);
    std::copy_n(w_.slots + begin, known, slots);
    std::fill_n(slots + known, count + kMostSlotsAhead - known, 0U);
    return slots;
  }

  // 16-bit values are widened by the strip's first micro-tile, overlapped with its multiply-adds, or in
  // advance if the micro-tile has no such form.
  Strip strip_of(const Blocks& blocks) const {
    const size_t block_values = order_.block_values();
    if constexpr (std::is_same_v<T, float>) {
      return {blocks.values, block_values, order_.strip_values(), blocks.slots, nullptr};
    } else {
      float* to = lists_ + scratch_.strip;
      const Strip widened{to, order_.strip_values(), strip_step(), list(scratch_.numbers),
                          widening_tile_ != nullptr ? blocks.values : nullptr};
      if (widening_tile_ != nullptr) return widened;
      const StripPart part = strip_part();
      for (size_t i = 0; i < blocks.count; ++i) {
        const T* from = blocks.values + blocks.slots[i] * block_values;
        for (size_t v = 0; v < order_.strip_values(); v += part.values, from += part.step, to += part.values)
          widen(from, part.values, to);
      }
      return widened;
    }
  }

  // Multiplies one strip of rows, from `row` on, by the panel.
  void tiles(const Strip& strip, const Blocks& blocks, uint32_t row) {
    const bool direct = direct_ && row + micro_rows_ <= w_.rows;
    if (!direct && row + micro_rows_ > chunk_row_ / kChunkRows * kChunkRows + kChunkRows) flush(row);
    float* raw = lists_ + scratch_.rows;
    WideTile tile{};
    tile.w = strip.values;
    tile.block_step = strip.block_step;
    tile.depth_step = strip.depth_step;
    tile.block_size = w_.block_size;
    tile.columns = blocks.columns;
    tile.slots = strip.slots;
    tile.blocks = blocks.count;
    tile.stream = direct && stream_;
    tile.fetch_y = direct && fetch_y_;
    const bool keeps = panel_.tiles.tiles() > 1 || order_.strip_rows > micro_rows_;
    tile.widening = {strip.bits16, order_.block_values(),   blocks.slots,
                     strip_part(), lists_ + scratch_.strip, keeps};
    // Collected rows have the layout of Y, minus the rotation of rows in place.
    float* const gathered =
        raw + (row - chunk_row_) * panel_.width - (panel_.packed ? 0 : panel_.rotation.columns);
    for (uint32_t t = 0; t < panel_.tiles.tiles(); ++t) {
      const uint32_t first = first_col(t), last = first_col(t + 1);
      tile.x = panel_.packed ? panel_x(first)
                             : slice_.x.pointer_to(0, int64_t{slice_.seen.first} + panel_.col + first);
      if (panel_.shifted) {
        tile.masks = list(scratch_.masks);
        tile.mask_bits = shifted_rows().bits + first / kLanes * mask_bytes(kLanes);
      }
      tile.x_step = panel_.packed ? last - first : static_cast<size_t>(slice_.x.row_stride);
      tile.y = direct ? slice_.y.pointer_to(row, panel_.col + first) : gathered + first;
      tile.y_step = direct ? static_cast<size_t>(slice_.y.row_stride) : panel_.width;
      tile.rotation = rotation_of(t);
      const uint32_t missing = last == panel_.width ? last - panel_.cols : 0;
      tile.missing = panel_.packed ? 0 : missing;
      if (direct) {
        const Epilogue& e = slice_.epilogue;
        tile.end = {bias_of(e, row), e.beta != 0, e.activation, missing};
      }
      const bool widens = strip.bits16 != nullptr && t == 0;
      const auto function =
          widens ? widening_tile_ : tile_of(t, static_cast<uint32_t>((last - first) / kLanes), tile.missing);
      function(tile);
    }
    if (direct) chunk_row_ = row + micro_rows_;
  }

  WideTileFunction tile_of(uint32_t t, uint32_t vectors, uint32_t missing) const {
    const bool small_block = w_.block_size == 4;
    if (panel_.packed) return tile_function<kTransposed, XForm::packed>(small_block, micro_rows_, vectors);
    if (panel_.rotation.columns != 0 && t == 0) return rotated_tile_function<kTransposed>(vectors);
    if constexpr (kHasMasks && !kTransposed) {
      if (panel_.shifted) return tile_function<false, XForm::shifted>(small_block, micro_rows_, vectors);
    }
    if constexpr (kHasMasks) {
      if (missing != 0)
        return tile_function<kTransposed, XForm::in_place_part>(small_block, micro_rows_, vectors);
    }
    return tile_function<kTransposed, XForm::in_place>(small_block, micro_rows_, vectors);
  }

  // Finishes the collected rows before `row`, and starts a new chunk there.
  void flush(uint32_t row) {
    const Piece piece{chunk_row_, panel_.begin, row - chunk_row_, panel_.cols};
    chunk_row_ = row;
    if (piece.rows == 0) return;
    float* raw = lists_ + scratch_.rows;
    if (slice_.y.col_stride == 1)
      finish_by_rows(slice_, piece, raw, panel_.width);
    else
      finish_columns(slice_.epilogue, slice_.y, piece.row, piece.rows, piece.col, piece.cols, raw,
                     panel_.width, stream_);
  }

  const BlockSlice& slice_;
  const BlockWeight& w_;
  const sparse::BlockOrder order_;
  const WideScratch scratch_;
  float* lists_;  // scratch of the running thread; the panel is in the slice's scratch
  const uint32_t micro_rows_;
  const uint32_t micro_vectors_;
  Rotation row_rotation_{};  // rotation of all columns of the slice
  Panel panel_{};
  WideTileFunction widening_tile_ = nullptr;
  bool direct_ = false;  // micro-tiles write directly to Y
  bool stream_ = false;  // Y is written with non-temporal stores
  bool fetch_y_ = false;
  uint32_t chunk_row_ = 0;  // first row of Y collected in scratch
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
