// Samples of a batch as lanes: columns[feature * lanes + lane], for a batch in either orientation.
#if defined(TESSERA_KERNELS_SAMPLE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_SAMPLE_LANES_INL_H_
#undef TESSERA_KERNELS_SAMPLE_LANES_INL_H_
#else
#define TESSERA_KERNELS_SAMPLE_LANES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/convert-inl.h"
#include "kernels/common/panels-inl.h"
#include "kernels/common/samples.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// The part of a batch that a tile of lanes holds: `count` samples from `begin` on, and zeros up to `lanes`,
// which are whole vectors.
struct LaneTile {
  uint32_t begin;
  uint32_t count;
  uint32_t lanes;
};

#if HWY_TARGET == HWY_AVX2
// Highway declares that masked operations might fault, because masked operations on narrower types do.
HWY_INLINE hn::Vec<Floats> load_some_lanes(const float* from, size_t count) {
  return hn::MaskedLoad(hn::FirstN(Floats(), count), Floats(), from);
}

// Masked stores without AVX-512 take tens of cycles on some processors.
HWY_INLINE void store_some_lanes(hn::Vec<Floats> v, float* to, size_t count) {
  const hn::Half<Floats> half;
  const hn::Half<decltype(half)> pair;
  auto block = hn::LowerHalf(half, v);
  if (count >= 4) {
    hn::StoreU(block, half, to);
    block = hn::UpperHalf(half, v);
  }
  float* rest = to + count / 4 * 4;
  if (count % 4 >= 2) {
    hn::StoreU(hn::LowerHalf(pair, block), pair, rest);
    block = hn::Shuffle1032(block);
    rest += 2;
  }
  if (count % 2 != 0) *rest = hn::GetLane(block);
}
#else
HWY_INLINE hn::Vec<Floats> load_some_lanes(const float* from, size_t count) {
  return load_first(Floats(), from, count);
}

HWY_INLINE void store_some_lanes(hn::Vec<Floats> v, float* to, size_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  store_first(Floats(), v, to, count);
#else
  hn::BlendedStore(v, hn::FirstN(Floats(), count), Floats(), to);
#endif
}
#endif

HWY_INLINE hn::Vec<Floats> load_lanes(const float* from, size_t count) {
  const Floats d;
  if (count >= kLanes) return hn::LoadU(d, from);
  return count == 0 ? hn::Zero(d) : load_some_lanes(from, count);
}

HWY_INLINE void store_lanes(hn::Vec<Floats> v, float* to, size_t count) {
  count >= kLanes ? hn::StoreU(v, Floats(), to) : store_some_lanes(v, to, count);
}

// Lanes of the tile from `lane` on that hold samples, at most a vector of them.
HWY_INLINE uint32_t samples_from(const LaneTile& tile, uint32_t lane) {
  return lane >= tile.count ? 0 : std::min<uint32_t>(kLanes, tile.count - lane);
}

// Transposes the features of contiguous samples, a square at a time.
inline void transpose_samples(const Samples& x, const LaneTile& tile, float* columns) {
  const Floats d;
  const auto step = static_cast<size_t>(x.sample_stride);
  for (uint32_t lane = 0; lane < tile.lanes; lane += kLanes) {
    const uint32_t samples = samples_from(tile, lane);
    if (samples == 0) continue;
    for (uint32_t f = 0; f < x.features; f += kLanes) {
      const float* from = x.pointer_to(tile.begin + lane, f);
      float* to = columns + size_t{f} * tile.lanes + lane;
      const size_t features = std::min<size_t>(kLanes, x.features - f);
      if (samples == kLanes && features == kLanes) {
        transpose_square(from, step, to, tile.lanes, false);
        continue;
      }
      transpose_square(
          [=](size_t i) HWY_ATTR {
            return load_lanes(from + (i < samples ? i : 0) * step, i < samples ? features : 0);
          },
          [=](size_t i, hn::Vec<Floats> v) HWY_ATTR {
            if (i < features) hn::StoreU(v, d, to + i * tile.lanes);
          });
    }
  }
}

// Fills columns of `features` features from the tile's samples, with zeros beyond the samples' features.
inline void load_samples(const Samples& x, const LaneTile& tile, uint32_t features, float* columns) {
  const uint32_t given = std::min(x.features, features);
  const size_t lanes = tile.lanes;
  if (x.feature_stride == 1) {
    Samples taken = x;
    taken.features = given;
    transpose_samples(taken, tile, columns);
    for (size_t begin = (tile.count + kLanes - 1) / kLanes * kLanes, f = 0; begin < lanes && f < given; ++f)
      std::fill(columns + f * lanes + begin, columns + (f + 1) * lanes, 0.0F);
  } else {
    const Floats d;
    for (uint32_t f = 0; f < given; ++f) {
      const float* from = x.pointer_to(tile.begin, f);
      float* to = columns + f * lanes;
      for (uint32_t lane = 0; x.sample_stride == 1 && lane < lanes; lane += kLanes)
        hn::StoreU(load_lanes(from + lane, samples_from(tile, lane)), d, to + lane);
      for (size_t lane = 0; x.sample_stride != 1 && lane < lanes; ++lane)
        to[lane] = lane < tile.count ? from[static_cast<int64_t>(lane) * x.sample_stride] : 0.0F;
    }
  }
  std::fill(columns + given * lanes, columns + features * lanes, 0.0F);
}

// Writes columns to the tile's samples, one per feature that they have.
inline void store_samples(const float* columns, const LaneTile& tile, const Samples& y) {
  const Floats d;
  const size_t lanes = tile.lanes;
  if (y.feature_stride != 1) {
    for (uint32_t f = 0; f < y.features; ++f) {
      const float* from = columns + f * lanes;
      float* to = y.pointer_to(tile.begin, f);
      for (uint32_t lane = 0; y.sample_stride == 1 && lane < tile.count; lane += kLanes)
        store_lanes(hn::LoadU(d, from + lane), to + lane, samples_from(tile, lane));
      for (size_t lane = 0; y.sample_stride != 1 && lane < tile.count; ++lane)
        to[static_cast<int64_t>(lane) * y.sample_stride] = from[lane];
    }
    return;
  }
  const auto step = static_cast<size_t>(y.sample_stride);
  for (uint32_t lane = 0; lane < tile.count; lane += kLanes) {
    const uint32_t samples = samples_from(tile, lane);
    for (uint32_t f = 0; f < y.features; f += kLanes) {
      const float* from = columns + f * lanes + lane;
      float* to = y.pointer_to(tile.begin + lane, f);
      const size_t features = std::min<size_t>(kLanes, y.features - f);
      if (samples == kLanes && features == kLanes) {
        transpose_square(from, lanes, to, step, false);
        continue;
      }
      transpose_square([=](size_t i) HWY_ATTR { return hn::LoadU(d, from + (i < features ? i : 0) * lanes); },
                       [=](size_t i, hn::Vec<Floats> v) HWY_ATTR {
                         if (i < samples) store_lanes(v, to + i * step, features);
                       });
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
