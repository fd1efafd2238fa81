// Moving samples into columns and back, and adding the lanes of columns.
#if defined(TESSERA_KERNELS_LANE_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_LANE_COLUMNS_INL_H_
#undef TESSERA_KERNELS_LANE_COLUMNS_INL_H_
#else
#define TESSERA_KERNELS_LANE_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/lane_columns.h"
#include "kernels/common/lane_totals-inl.h"
#include "kernels/common/sample_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls work(tile) for the tiles of a batch.
template <class Work>
void each_lane_tile(uint32_t samples, const Work& work) {
  for (uint32_t begin = 0; begin < samples; begin += kColumnLanes)
    work(LaneTile{begin, std::min(samples - begin, kColumnLanes), kColumnLanes});
}

// At most `count` of the features from `begin` on.
inline Samples features_from(const Samples& of, uint32_t begin, uint32_t count) {
  Samples some = of;
  some.features = std::min(of.features - std::min(of.features, begin), count);
  if (some.features > 0) some.data = of.pointer_to(0, begin);
  return some;
}

// Fills columns of `features` features from the tile's samples, with zeros beyond the samples' features.
inline void load_columns(const Samples& from, const LaneTile& tile, uint32_t features, float* columns) {
  for (uint32_t begin = 0; begin < features; begin += kColumnRun)
    load_samples(features_from(from, begin, kColumnRun), tile, std::min(features - begin, kColumnRun),
                 columns + column_of(begin));
}

// Writes columns to the tile's samples, one per feature that they have.
inline void store_columns(const float* columns, const LaneTile& tile, const Samples& to) {
  for (uint32_t begin = 0; begin < to.features; begin += kColumnRun)
    store_samples(columns + column_of(begin), tile, features_from(to, begin, kColumnRun));
}

// Loads a single sample as a line of `features` features, with zeros beyond its own.
inline void load_line(const Samples& from, uint32_t sample, uint32_t features, float* line) {
  const uint32_t given = std::min(from.features, features);
  for (uint32_t f = 0; f < given; ++f) line[f] = *from.pointer_to(sample, f);
  std::fill(line + given, line + features, 0.0F);
}
inline void store_line(const float* line, uint32_t sample, const Samples& to) {
  for (uint32_t f = 0; f < to.features; ++f) *to.pointer_to(sample, f) = line[f];
}

// Adds the lanes of each column to totals, which are `features` floats, in whole vectors.
inline void add_lane_totals(const float* columns, size_t features, float* totals) {
  const Floats d;
  for (size_t p = 0; p < features; p += kLanes) {
    hn::Vec<Floats> sums[kLanes];
    const size_t count = std::min(features - p, kLanes);
    const float* column = columns + column_of(p);
    for (size_t i = 0; i < kLanes; ++i) {
      sums[i] = hn::Zero(d);
      for (size_t lane = 0; i < count && lane < kColumnLanes; lane += kLanes)
        sums[i] = hn::Add(sums[i], hn::Load(d, column + i * kColumnLanes + lane));
    }
    hn::Store(hn::Add(totals_of(sums), hn::Load(d, totals + p)), d, totals + p);
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
