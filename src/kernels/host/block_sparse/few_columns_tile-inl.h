// The few-column micro-tile: one load gets the values of several rows for a group of columns of W; it is
// multiplied by the same group of X, repeated, and each row's partial sums are reduced at the end.
#if defined(TESSERA_BLOCK_SPARSE_FEW_COLUMNS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BLOCK_SPARSE_FEW_COLUMNS_TILE_INL_H_
#undef TESSERA_BLOCK_SPARSE_FEW_COLUMNS_TILE_INL_H_
#else
#define TESSERA_BLOCK_SPARSE_FEW_COLUMNS_TILE_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/common/accumulate-inl.h"
#include "kernels/common/panels-inl.h"
#include "kernels/host/block_sparse/layout.h"
#include "kernels/host/block_sparse/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// Vectors that hold the values of a group.
inline constexpr size_t kGroupVectors = kGroupValues / kLanes;

// Maximum number of a micro-tile's sums in registers, and of columns of X.
inline constexpr size_t kFewColumnSums = HWY_TARGET <= HWY_AVX3 ? 16 : HWY_TARGET == HWY_AVX2 ? 12 : 16;
inline constexpr size_t kFewColumnTileCols =
    std::min<size_t>(kFewColumns, HWY_TARGET == HWY_AVX2 ? 4 : kFewColumnSums / kGroupVectors);

// Independent sums needed to hide the latency of fused multiply-adds.
inline constexpr size_t kFewColumnLeastSums = 4;

// Prefetch distances: values of W ahead of the current block, and blocks ahead of it for rows of X.
inline constexpr size_t kFewColumnValuesAhead = 1024;
inline constexpr size_t kFewColumnBlocksAhead = 3;

// Input and output of a micro-tile: strips of one block row, times columns of X.
template <class T, class Index>
struct FewColumnTile {
  const T* w;             // the strips in the row's first block, or with slots in slot 0
  const Index* columns;   // columns of the row's blocks
  const uint32_t* slots;  // slots of the row's blocks; null: consecutive
  size_t blocks;
  size_t last;  // last block of the slice whose column may be read
  uint32_t block_size;
  const float* x;  // [k / group][columns][group]
  float* y;        // [columns][kChunkRows]

  size_t block_values() const { return size_t{block_size} * block_size; }
  const T* values_of(size_t i) const { return w + (slots == nullptr ? i : slots[i]) * block_values(); }
  // Values to prefetch during block i.
  const T* values_ahead_of(size_t i) const {
    const size_t next = i + std::max<size_t>(1, kFewColumnValuesAhead / block_values());
    return w + (slots == nullptr ? next : slots[std::min(next, last)]) * block_values();
  }
};

template <int kGroup>
HWY_INLINE hn::Vec<Floats> repeat_group(const float* x) {
  const Floats d;
  if constexpr (kGroup == 4) {
    return hn::LoadDup128(d, x);
  } else {
    const hn::RepartitionToWide<Floats> pairs;
    hn::TFromD<hn::RepartitionToWide<Floats>> pair;
    std::memcpy(&pair, x, sizeof(pair));
    return hn::BitCast(d, hn::Set(pairs, pair));
  }
}

// Copies one group of rows of X, with contiguous elements, to [cols][kGroup]. May write kPackSpill floats
// more.
template <int kGroup>
HWY_INLINE void interleave_rows(const float* x, int64_t row_stride, uint32_t cols, float* to) {
  const hn::CappedTag<float, kFewColumns> d;
  for (uint32_t c = 0; c < cols; c += hn::MaxLanes(d)) {
    const auto some = hn::FirstN(d, cols - c);
    const auto row = [&](int64_t i) HWY_ATTR { return hn::MaskedLoad(some, d, x + i * row_stride + c); };
    if constexpr (kGroup == 2) {
      hn::StoreInterleaved2(row(0), row(1), d, to + c * kGroup);
    } else {
      hn::StoreInterleaved4(row(0), row(1), row(2), row(3), d, to + c * kGroup);
    }
  }
}

// Copies rows 0 to k of X to [depth / kGroup][cols][kGroup], with zeros from k on.
template <int kGroup>
HWY_NOINLINE void pack_groups(MatrixView<const float> x, uint32_t k, uint32_t depth, uint32_t cols,
                              float* to) {
  const uint32_t whole = k / kGroup * kGroup;
  const uint32_t step = cols * kGroup;
  if (x.col_stride == 1) {
    float* group = to;
    for (uint32_t i = 0; i < whole; i += kGroup, group += step) {
      interleave_rows<kGroup>(x.data + i * x.row_stride, x.row_stride, cols, group);
    }
  } else {
    for (uint32_t c = 0; c < cols; ++c) {
      const float* from = x.data + c * x.col_stride;
      float* group = to + c * kGroup;
      for (uint32_t i = 0; i < whole; i += kGroup, group += step) {
        std::memcpy(group, from + i, kGroup * sizeof(float));
      }
    }
  }
  for (uint32_t i = whole; i < depth; ++i) {
    for (uint32_t c = 0; c < cols; ++c) {
      to[i / kGroup * step + c * kGroup + i % kGroup] = i < k ? x(i, c) : 0;
    }
  }
}

// Adds up each row's kGroup neighbours: kGroupValues partial sums become kGroupValues / kGroup.
template <int kGroup>
HWY_INLINE void add_groups(const float* partial, float* y) {
  if constexpr (kGroup == 2) {
    const hn::CappedTag<float, kGroupValues / kGroup> d;
    for (size_t i = 0; i < kGroupValues / kGroup; i += hn::MaxLanes(d)) {
      hn::Vec<decltype(d)> even, odd;
      hn::LoadInterleaved2(d, partial + i * 2, even, odd);
      hn::StoreU(hn::Add(even, odd), d, y + i);
    }
  } else {
    const hn::CappedTag<float, kGroupValues / kGroup> d;
    hn::Vec<decltype(d)> a, b, c, e;
    hn::LoadInterleaved4(d, partial, a, b, c, e);
    hn::StoreU(hn::Add(hn::Add(a, b), hn::Add(c, e)), d, y);
  }
}

template <class T, class Index, int kStrips, int kCols, int kGroup>
HWY_NOINLINE void few_column_tile(const FewColumnTile<T, Index>& t) {
  constexpr int kVectors = kGroupVectors;
  constexpr int kSums = kStrips * kCols * kVectors;
  // Independent groups in flight, each with its own sums; a block of 4 has one group.
  constexpr int kFlights = kGroup == 4 || kSums >= int{kFewColumnLeastSums} ? 1 : kSums == 1 ? 4 : 2;
  constexpr int kStripRows = kGroupValues / kGroup;
  const Floats d;
  hn::Vec<Floats> sum[kFlights][kStrips][kVectors][kCols];
#pragma GCC unroll 4
  for (int f = 0; f < kFlights; ++f) {
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
        for (int c = 0; c < kCols; ++c) sum[f][s][v][c] = hn::Zero(d);
      }
    }
  }

  const size_t strip_values = size_t{t.block_size} * kStripRows;
  const uint32_t groups = t.block_size / kGroup;
  for (size_t i = 0; i < t.blocks; ++i) {
    const T* w = t.values_of(i);
    const T* next_w = t.values_ahead_of(i);
    const float* x = t.x + size_t{t.columns[i]} * t.block_size * kCols;
    const size_t next = t.columns[std::min(i + kFewColumnBlocksAhead, t.last)];
    const float* next_x = t.x + next * t.block_size * kCols;
    for (uint32_t g = 0; g < groups; g += kFlights) {
#pragma GCC unroll 4
      for (int f = 0; f < kFlights; ++f) {
        if constexpr (kCols > 2) hwy::Prefetch(next_x);
        hn::Vec<Floats> ws[kStrips][kVectors];
#pragma GCC unroll 4
        for (int s = 0; s < kStrips; ++s) {
          hwy::Prefetch(next_w + s * strip_values);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            ws[s][v] = load_values(d, w + s * strip_values + v * kLanes);
          }
        }
#pragma GCC unroll 8
        for (int c = 0; c < kCols; ++c) {
          const auto xs = repeat_group<kGroup>(x + c * kGroup);
#pragma GCC unroll 4
          for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
              accumulate(ws[s][v], xs, sum[f][s][v][c]);
            }
          }
        }
        w += kGroupValues;
        next_w += kGroupValues;
        x += kCols * kGroup;
        next_x += kCols * kGroup;
      }
    }
  }

#pragma GCC unroll 4
  for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 8
    for (int c = 0; c < kCols; ++c) {
      HWY_ALIGN float partial[kGroupValues];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        auto total = sum[0][s][v][c];
#pragma GCC unroll 4
        for (int f = 1; f < kFlights; ++f) total = hn::Add(total, sum[f][s][v][c]);
        hn::Store(total, d, partial + v * kLanes);
      }
      add_groups<kGroup>(partial, t.y + c * kChunkRows + s * kStripRows);
    }
  }
}

template <class T, class Index>
using FewColumnTileFunction = void (*)(const FewColumnTile<T, Index>&);

// The micro-kernels for 1 to kFewColumnTileCols columns.
template <class T, class Index, int kStrips, int kGroup, int... kCol>
FewColumnTileFunction<T, Index> few_column_function(uint32_t cols, std::integer_sequence<int, kCol...>) {
  static constexpr FewColumnTileFunction<T, Index> kTable[] = {
      few_column_tile<T, Index, kStrips, kCol + 1, kGroup>...};
  return kTable[cols - 1];
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
