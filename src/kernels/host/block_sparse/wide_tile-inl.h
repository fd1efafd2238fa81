// The micro-kernel of the wide kernel: a micro-tile of rows × vectors of Y in registers.
#if defined(TESSERA_BLOCK_SPARSE_WIDE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BLOCK_SPARSE_WIDE_TILE_INL_H_
#undef TESSERA_BLOCK_SPARSE_WIDE_TILE_INL_H_
#else
#define TESSERA_BLOCK_SPARSE_WIDE_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/common/accumulate-inl.h"
#include "kernels/common/activation-inl.h"
#include "kernels/common/convert-inl.h"
#include "kernels/common/panels-inl.h"
#include "kernels/host/block_sparse/layout.h"
#include "kernels/host/block_sparse/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How a micro-tile accesses its part of X.
enum class XForm : uint8_t {
  packed,         // in a panel as wide as the micro-tile
  in_place,       // in rows `x_step` apart
  in_place_part,  // the same, with a last vector that lacks columns
  rotated,        // in place, with rotated rows
  shifted,        // in images, where a block's columns are a channel's, shifted and masked
};

// Whether loads of a part of a vector are as fast as loads of whole ones.
inline constexpr bool kHasMasks = HWY_MEM_OPS_MIGHT_FAULT == 0 && kLanes == kMaxLanes;

// Contiguous values of a block in a strip, and the distance to the next such part.
struct StripPart {
  size_t values;
  size_t step;
};

// 16-bit values that a micro-tile widens on the fly, each block while it multiplies the previous one.
struct Widening {
  const void* values;     // the strip in the block of slot 0
  size_t block_step;      // values from slot to slot
  const uint32_t* slots;  // slots of the row's blocks
  StripPart part;         // how the strip lies in a block
  float* to;              // destination of their FP32 values, consecutive strips
  bool keeps;             // keep all of it for other micro-tiles; otherwise two blocks alternate
};

// How a micro-tile finishes its sums (is_bounded_sum()).
struct TileEnd {
  const float* bias = nullptr;  // of the first row, or null
  bool adds = false;            // to Y
  Activation activation = Activation::none;
  uint32_t missing = 0;  // columns of the last vector that Y lacks; then it does not add

  bool is_plain() const { return bias == nullptr && !adds && activation == Activation::none && missing == 0; }
};

// Input and output of a micro-tile: rows of a strip of one block row, times vectors of X.
struct WideTile {
  const float* w;     // the strip in the block of slot 0, from the micro-tile's first row on
  size_t block_step;  // floats from slot to slot
  size_t depth_step;  // transposed: floats from 8 rows of a block to the next 8
  uint32_t block_size;
  const uint32_t* columns;  // block column of each block and of kMostBlocksAhead more; for images, the place
                            // where its rows begin (int32_t)
  const uint32_t* masks;    // place in mask_bits of each block's masks
  const uint8_t* mask_bits;
  const uint32_t* slots;  // slot of each block and of kMostSlotsAhead more
  size_t blocks;
  const float* x;
  size_t x_step;  // floats between rows of X; a packed panel is as wide as the micro-tile
  float* y;
  size_t y_step;      // floats between rows of Y
  bool stream;        // use non-temporal stores; y is then aligned to vectors
  bool fetch_y;       // prefetch y
  Rotation rotation;  // rotation of Y, and of X in place
  uint32_t missing;   // columns of the last vector that X lacks
  TileEnd end;
  Widening widening;
};

// Prefetch distance of W, in floats.
inline constexpr size_t kValuesAhead = 1024;
inline constexpr size_t kFewColumnAhead = 2048;

// Prefetch distance of rows of X, in blocks: the number of columns of W whose products take as long as a read
// from the L2 cache, plus a page walk for rows in place, which are spread over many pages.
inline constexpr size_t kMostBlocksAhead = 6;
template <XForm kForm>
constexpr size_t blocks_ahead(uint32_t block_size) {
  constexpr uint32_t kColumnsAhead = kForm == XForm::packed ? 12 : 24;
  constexpr uint32_t kLeast = kLanes == kMaxLanes ? 1 : 2;
  return std::clamp<size_t>(kColumnsAhead / block_size, kLeast, kMostBlocksAhead);
}

// Prefetches row c of a group of rows of X, each cache line once: packed rows are contiguous, so of two rows
// with an odd number of AVX2's half-line vectors the first has a line less.
template <int kVectors, XForm kForm>
HWY_INLINE void prefetch_row(const float* row, int c) {
  constexpr int kLine = 16;
  constexpr int kWidth = kVectors * static_cast<int>(kLanes);
  const int begin = kForm == XForm::packed ? (kLine - c * kWidth % kLine) % kLine : 0;
#pragma GCC unroll 8
  for (int i = begin; i < kWidth; i += kLine) hwy::Prefetch(row + i);
}

// Prefetch distance of values, in blocks.
constexpr size_t slots_ahead(size_t values_ahead, size_t block_values) {
  return std::clamp<size_t>(values_ahead / block_values, 1, kMostSlotsAhead);
}

// Widens the strip of `count` values in block i.
template <class T>
HWY_INLINE void widen_block(const Widening& w, size_t i, size_t count) {
  constexpr size_t kLineValues = 64 / sizeof(T);
  const T* values = static_cast<const T*>(w.values);
  const T* from = values + w.slots[i] * w.block_step;
  const T* ahead = values + w.slots[i + slots_ahead(kFewColumnAhead, w.block_step)] * w.block_step;
  float* to = w.to + (w.keeps ? i : i % 2) * count;
  for (size_t v = 0; v < count; v += w.part.values) {
    for (size_t line = 0; line < w.part.values; line += kLineValues) hwy::Prefetch(ahead + line);
    widen(from, w.part.values, to + v);
    from += w.part.step;
    ahead += w.part.step;
  }
}

// Position of value (r, c) of a micro-tile, where c counts the columns of W, as the product sees it, from the
// first of one iteration.
template <int kGroup, bool kTransposed>
constexpr size_t value_offset(int r, int c) {
  if (!kTransposed) return c / kGroup * kGroupValues + r * kGroup + c % kGroup;
  return kGroup == 4 ? c * kGroup + r : r / kGroup * kGroupValues + c * kGroup + r % kGroup;
}

// Position of the first value of column c of a transposed strip, and the cache lines shared with neighbouring
// columns. 8 of its columns are 4 whole groups of W's own columns.
template <int kGroup>
HWY_INLINE size_t column_offset(uint32_t c, size_t depth_step) {
  return kGroup == 4 ? 0 : c / 8 * depth_step + c % 8 * kGroup;
}
template <int kGroup>
HWY_INLINE size_t line_offset(uint32_t c, size_t depth_step) {
  return kGroup == 4 ? 0 : c / 8 * depth_step + c % 8 / kGroup * kGroupValues;
}

// rows × vectors accumulators, one broadcast of W and `vectors` loads of X in flight. Values are in groups of
// columns (sparse::BlockOrder), and belong to the transpose if kTransposed. Compile-time widths save address
// registers.
template <int kRows, int kVectors, int kGroup, bool kTransposed, XForm kForm, class T = float>
HWY_NOINLINE void wide_tile(const WideTile& t) {
  const Floats d;
  const Rotation rotation = t.rotation;
  hn::Mask<Floats> inside[kVectors];
  const auto present = hn::FirstN(d, kLanes - t.missing);
  const auto load_x = [&](const float* x, int v) HWY_ATTR {
    if (kForm == XForm::shifted) return hn::MaskedLoad(inside[v], d, x + v * kLanes);
    if (kForm == XForm::in_place_part && v == kVectors - 1) return hn::MaskedLoad(present, d, x + v * kLanes);
    return kForm == XForm::rotated && v == 0 ? rotation.load(x) : hn::LoadU(d, x + v * kLanes);
  };
  const size_t x_step = kForm == XForm::packed ? kVectors * kLanes : t.x_step;
  // Columns of W per iteration: with AVX2's small micro-tiles a loop over fewer costs up to a tenth.
  constexpr int kDepth = kGroup == 4 || kLanes == 16 ? 4 : 8;
  const uint32_t parts = kGroup == 4 ? 1 : t.block_size / kDepth;
  // Columns of W in flight, each with its own sums: a multiply-add takes four cycles, and two start in each.
  constexpr int kFlights = kRows * kVectors < 8 ? 2 : 1;
  hn::Vec<Floats> sum[kFlights][kRows][kVectors];
#pragma GCC unroll 2
  for (int f = 0; f < kFlights; ++f) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[f][r][v] = hn::Zero(d);
    }
  }
  if (t.fetch_y) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) __builtin_prefetch(t.y + r * t.y_step + v * kLanes, 1);
    }
  }

  const size_t x_block = parts * kDepth * x_step;
  constexpr bool kWidens = !std::is_same_v<T, float>;
  const size_t strip_values = kGroup == 4 ? kGroupValues : size_t{t.block_size} * 8;
  const size_t ahead = slots_ahead(kValuesAhead, t.block_step);
  const size_t x_ahead = kGroup == 4 ? blocks_ahead<kForm>(4) : blocks_ahead<kForm>(t.block_size);
  if (kWidens && t.blocks > 0) widen_block<T>(t.widening, 0, strip_values);
  for (size_t i = 0; i < t.blocks; ++i) {
    const float* w = nullptr;
    const float* next_w = nullptr;
    if constexpr (kWidens) {
      if (i + 1 < t.blocks) widen_block<T>(t.widening, i + 1, strip_values);
      w = t.widening.to + (t.widening.keeps ? i : i % 2) * strip_values;
    } else {
      w = t.w + t.slots[i] * t.block_step;
      next_w = t.w + t.slots[i + ahead] * t.block_step;
    }
    const auto rows_of = [&](size_t block) HWY_ATTR {
      if (kForm == XForm::shifted) return t.x + static_cast<int32_t>(t.columns[block]);
      return t.x + t.columns[block] * x_block;
    };
    const float* x = rows_of(i);
    const float* next_x = rows_of(i + x_ahead);
    if constexpr (kForm == XForm::shifted) {
      const uint8_t* bits = t.mask_bits + t.masks[i];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) inside[v] = hn::LoadMaskBits(d, bits + v * mask_bytes(kLanes));
    }
    const float* values = w;
    const float* lines = next_w;
    for (uint32_t part = 0; part < parts; ++part) {
      if constexpr (kTransposed) {
        values = w + column_offset<kGroup>(part * kDepth, t.depth_step);
        if constexpr (!kWidens) lines = next_w + line_offset<kGroup>(part * kDepth, t.depth_step);
      }
#pragma GCC unroll 8
      for (int c = 0; c < kDepth; ++c) {
        if (!kWidens && c % kGroup == 0) hwy::Prefetch(lines + c / kGroup * kGroupValues);
        hn::Vec<Floats> xs[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) xs[v] = load_x(x, v);
        prefetch_row<kVectors, kForm>(next_x, c);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const auto value = hn::Set(d, values[value_offset<kGroup, kTransposed>(r, c)]);
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) accumulate(value, xs[v], sum[c % kFlights][r][v]);
        }
        x += x_step;
        next_x += x_step;
      }
      if constexpr (!kTransposed) values += kDepth / kGroup * kGroupValues;
      if constexpr (!kTransposed && !kWidens) lines += kDepth / kGroup * kGroupValues;
    }
  }

  const TileEnd end = t.end;
  const bool is_plain = end.is_plain();
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* to = t.y + r * t.y_step + v * kLanes;
      auto total = sum[0][r][v];
      if constexpr (kFlights == 2) total = hn::Add(total, sum[1][r][v]);
      const bool may_rotate = kForm == XForm::packed || kForm == XForm::rotated;
      const bool is_rotated = may_rotate && v == 0 && rotation.columns != 0;
      if (!is_plain) {
        if (end.adds) total = hn::Add(total, is_rotated ? rotation.load(to) : hn::LoadU(d, to));
        if (end.bias != nullptr) total = hn::Add(total, hn::Set(d, end.bias[r]));
        if (end.activation != Activation::none) total = activate(d, Activation::relu, total);
        if (end.activation == Activation::relu6)
          total = hn::IfThenElse(hn::Gt(total, hn::Set(d, 6.0F)), hn::Set(d, 6.0F), total);
      }
      if (is_rotated) {
        rotation.store(total, to);
      } else if (v + 1 == kVectors && end.missing != 0) {
        store_masked(d, total, to, kLanes - end.missing);
      } else if (t.stream) {
        hn::Stream(total, d, to);
      } else {
        hn::StoreU(total, d, to);
      }
    }
  }
}

using WideTileFunction = void (*)(const WideTile&);

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
