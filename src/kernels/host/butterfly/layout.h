// The order in which the factors of butterflies are applied, and the layout of their columns in scratch.
//
// Several factors are applied in one pass over registers. Passes of small strides stay within a chunk of
// features, whose columns stay in the L1 cache; then larger strides sweep over all features, in units that
// stay in the L1 cache as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/common/splits.h"
#include "kernels/host/butterfly/codelet.h"

namespace tessera::kernels {

inline constexpr uint32_t kButterflyChunkBits = 8;
inline constexpr uint32_t kButterflyChunk = 1 << kButterflyChunkBits;
/// Strides of a sweep, and adjacent features that it processes together.
inline constexpr uint32_t kButterflySweepBits = 4;
inline constexpr uint32_t kButterflyRun = 16;
inline constexpr uint32_t kMostPassBits = 4;

/// Lanes of a forward tile: a cache line.
inline constexpr uint32_t kButterflyLanes = 16;

/// Whether a tile's samples are multiplied one by one, with vectors of `lanes` lanes along the features.
inline bool butterfly_along_features(const ButterflyShape& s, uint32_t samples, uint32_t lanes) {
  constexpr uint32_t kMostSamples = 5;  // up to which single samples take less time than a tile
  return !s.complex && s.n() >= 2 * lanes && samples <= kMostSamples;
}

/// The factors of strides 2^first to 2^(first + bits - 1) of a block.
struct ButterflyPass {
  uint32_t block;
  uint32_t first;
  uint32_t bits;
  bool decreasing;
};

/// Passes whose strides are 2^low to 2^(high - 1), which together act on units of features: a chunk, or
/// 2^(high - low) runs at a distance of 2^low.
struct ButterflySegment {
  size_t begin;
  size_t end;
  uint32_t low;
  uint32_t high;

  bool is_chunk() const { return low == 0; }
  uint32_t units(uint32_t n) const { return is_chunk() ? n >> high : n / (kButterflyRun << (high - low)); }
  uint32_t runs() const { return is_chunk() ? 1 : uint32_t{1} << (high - low); }
  uint32_t run() const { return is_chunk() ? uint32_t{1} << high : kButterflyRun; }
  /// First feature of a unit.
  uint32_t feature(uint32_t unit) const {
    if (is_chunk()) return unit << high;
    const uint32_t bits = low - 4;  // log₂ of the number of runs between two strides
    return (unit >> bits << high) + (unit & ((uint32_t{1} << bits) - 1)) * kButterflyRun;
  }
};

struct ButterflyOrder {
  std::vector<ButterflyPass> passes;
  std::vector<ButterflySegment> segments;

  /// The order of passes with at most `most` factors each.
  ButterflyOrder(const ButterflyShape& s, uint32_t most) {
    const uint32_t chunk = std::min(s.log_n, kButterflyChunkBits), rest = s.log_n - chunk;
    const uint32_t sweeps = (rest + kButterflySweepBits - 1) / kButterflySweepBits;
    for (uint32_t block = 0; block < std::max(1U, s.blocks); ++block) {
      const bool decreasing = s.decreasing != (block % 2 == 1);
      for (uint32_t i = 0; i <= sweeps; ++i) {
        const uint32_t sweep = decreasing ? sweeps - i : i;  // 0: the chunks
        const uint32_t low = sweep == 0 ? 0 : chunk + (sweep - 1) * rest / sweeps;
        add(block, decreasing, low, sweep == 0 ? chunk : chunk + sweep * rest / sweeps, most);
      }
    }
  }

 private:
  void add(uint32_t block, bool decreasing, uint32_t low, uint32_t high, uint32_t most) {
    if (segments.empty() || segments.back().low != low || segments.back().high != high)
      segments.push_back({passes.size(), passes.size(), low, high});
    const uint32_t parts = (high - low + most - 1) / most;
    for (uint32_t i = 0; i < parts; ++i) {
      const uint32_t part = decreasing ? parts - 1 - i : i;
      const uint32_t first = low + part * (high - low) / parts;
      passes.push_back({block, first, low + (part + 1) * (high - low) / parts - first, decreasing});
    }
    segments.back().end = passes.size();
  }
};

/// Columns of a tile, with a cache line between chunks: otherwise features that are a power of two apart
/// would lie in the same sets of the cache.
struct ButterflyColumns {
  size_t width;  ///< floats of a feature
  size_t chunk;  ///< floats from one chunk to the next

  ButterflyColumns(const ButterflyShape& s, uint32_t lanes)
      : width(size_t{lanes} * s.parts()), chunk(width * kButterflyChunk + kButterflyRun) {}

  /// Columns without gaps.
  explicit ButterflyColumns(size_t floats) : width(floats), chunk(floats * kButterflyChunk) {}

  size_t at(uint32_t feature) const {
    return feature / kButterflyChunk * chunk + feature % kButterflyChunk * width;
  }
  /// Floats between features that are 2^bit apart.
  size_t stride(uint32_t bit) const {
    return bit < kButterflyChunkBits ? width << bit : chunk << (bit - kButterflyChunkBits);
  }
  size_t size(uint32_t n) const { return round_up(static_cast<uint32_t>(at(n - 1) + width), kButterflyRun); }
};

/// Maximum number of factors of a pass that computes gradients, such that the sums of their coefficients stay
/// in registers.
inline uint32_t butterfly_gradient_bits(const ButterflyShape& s) { return s.complex ? 1 : 2; }

/// Number of column buffers that gradients need: the input of each pass, the gradient, and its sum over
/// stacks.
inline size_t butterfly_gradient_buffers(const ButterflyShape& s) {
  return ButterflyOrder(s, butterfly_gradient_bits(s)).passes.size() + (s.stacks > 1 ? 2 : 1);
}

/// Lanes of a tile of gradients: many, since sums over lanes take time per tile, but few enough for the L2
/// cache.
inline uint32_t butterfly_gradient_lanes(const ButterflyShape& s, uint32_t samples) {
  constexpr size_t kMostFloats = 256 << 10;
  constexpr uint32_t kMostLanes = 64;
  const size_t floats = butterfly_gradient_buffers(s) * s.n() * s.parts();
  uint32_t lanes = std::min(kMostLanes, round_up(std::max(1U, samples), kButterflyLanes));
  while (lanes > kButterflyLanes && lanes * floats > kMostFloats) lanes -= kButterflyLanes;
  return lanes;
}

}  // namespace tessera::kernels
