// Groups and scratch of Kronecker-sparse factors, shared by kernels, costs and the reference.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/common/splits.h"
#include "kernels/host/kronecker/codelet.h"
#include "program/codelet.h"

namespace tessera::kernels {

inline KroneckerFactor factor_of(std::span<const int64_t> params) {
  const auto at = [&](size_t i) { return static_cast<uint32_t>(params[i]); };
  using namespace kronecker_param;
  return {at(a), at(b), at(c), at(d)};
}

/// One side of a group: `count` features from `first` on, d apart, without features that the operand lacks.
struct GroupFeatures {
  uint32_t first;
  uint32_t count;

  GroupFeatures(const KroneckerFactor& f, uint32_t group, uint32_t size, uint32_t features)
      : first(group / f.d * size * f.d + group % f.d),
        count(first >= features ? 0 : std::min(size, (features - first + f.d - 1) / f.d)) {}
};

/// A group (i, t) is number i·d + t, and its weights are row i·d + t of the weight.
struct KroneckerGroup {
  GroupFeatures in;
  GroupFeatures out;

  KroneckerGroup(const KroneckerFactor& f, uint32_t group, uint32_t inputs, uint32_t outputs)
      : in(f, group, f.c, inputs), out(f, group, f.b, outputs) {}
};

/// Number of samples of a strip: its panels stay in the L1 cache.
inline constexpr uint32_t kKroneckerStrip = 32;
/// Maximum number of samples that are multiplied as dot products, which read the weights in place.
inline constexpr uint32_t kFewSamples = 3;

/// Maximum number of weights of a group that a lane of a vector may hold.
inline constexpr size_t kMostLaneWeights = 64 * 64;

inline bool fits_group_lanes(const KroneckerFactor& f) { return size_t{f.b} * f.c <= kMostLaneWeights; }

/// Whether a kernel with a group in each lane suits samples in rows: most lanes hold a group.
inline bool suits_group_lanes(const KroneckerFactor& f, uint32_t samples, uint32_t lanes) {
  constexpr uint32_t kLeastSamples = 4;
  return samples >= kLeastSamples && fits_group_lanes(f) && 4 * f.d >= 3 * round_up(f.d, lanes);
}

/// Number of samples whose features are copied at a time where neither order suits a factor.
inline constexpr uint32_t kKroneckerLanes = 64;

inline size_t padded(uint32_t features) { return round_up(features, kMaxLanes); }

/// Panels of a strip for one group, in floats from the start of scratch: `strip` samples of c inputs and b
/// outputs in both orders, and the group's transposed weight.
struct KroneckerPanels {
  size_t in;
  size_t in_rows;
  size_t out;
  size_t weight;
  size_t strided;  // instead of `weight`: the weights of one group per lane of a vector
  size_t total;

  explicit KroneckerPanels(const KroneckerFactor& f)
      : in(0),
        in_rows(in + padded(f.c) * kKroneckerStrip),
        out(in_rows + padded(f.c) * kKroneckerStrip),
        weight(out + padded(f.b) * kKroneckerStrip),
        strided(weight),
        total(weight +
              std::max(padded(f.b) * padded(f.c), fits_group_lanes(f) ? size_t{f.b} * f.c * kMaxLanes : 0)) {}
};

/// Copies of operands as columns, behind the panels.
struct KroneckerColumns {
  size_t x;
  size_t y;
  size_t dx;
  size_t forward_total;
  size_t total;

  explicit KroneckerColumns(const KroneckerFactor& f)
      : x(KroneckerPanels(f).total),
        y(x + size_t{f.inputs()} * kKroneckerLanes),
        dx(y + size_t{f.outputs()} * kKroneckerLanes),
        forward_total(dx),
        total(dx + size_t{f.inputs()} * kKroneckerLanes) {}
};

}  // namespace tessera::kernels
