// Passes of a butterfly over the columns of a tile, and the forward product.
#if defined(TESSERA_BUTTERFLY_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BUTTERFLY_FORWARD_INL_H_
#undef TESSERA_BUTTERFLY_FORWARD_INL_H_
#else
#define TESSERA_BUTTERFLY_FORWARD_INL_H_
#endif

#include "kernels/host/butterfly/features-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

using program::FieldView;
using program::Phase;

// Maximum number of factors of a pass, such that features stay in registers.
inline constexpr uint32_t kForwardBits = HWY_TARGET == HWY_AVX3 ? 4 : 3;

// Common arguments of a tile's passes.
struct ButterflyTile {
  StackTwiddle twiddle;
  uint32_t lanes;
};

// Applies all factors of a pass to one group in registers.
template <size_t bits, bool tied, bool decreasing, class Value>
HWY_INLINE void multiply_group(const GroupTwiddle& twiddle, size_t offset, Value* x) {
#pragma GCC unroll 4
  for (size_t i = 0; i < bits; ++i) {
    const size_t level = decreasing ? bits - 1 - i : i;
    const float* t = twiddle.at[level] + offset;
#pragma GCC unroll 8
    for (size_t pair = 0; pair < size_t{1} << (bits - 1); ++pair) {
      const GroupPair p = group_pair<tied>(level, pair);
      Value::multiply(t + p.matrix * twiddle.step, x[p.first], x[p.second]);
    }
  }
}

template <size_t bits, bool tied, bool decreasing, class Value>
HWY_INLINE void run_pass(const ButterflyTile& tile, const ButterflyPass& pass, const PassGroups& groups,
                         const ColumnView& from, const ColumnView& to) {
  constexpr size_t kFeatures = size_t{1} << bits;
  const size_t lanes = tile.lanes, from_part = from.part, to_part = to.part;
  const size_t from_step = from.layout.stride(pass.first), to_step = to.layout.stride(pass.first);
  each_run(groups, [&](uint32_t feature, uint32_t count, uint32_t apart) HWY_ATTR {
    const GroupTwiddle twiddle = tile.twiddle.at<tied>(pass, feature);
    const size_t from_next = from.layout.width * apart, to_next = to.layout.width * apart;
    const size_t next_offset = Value::kMatrix * group_matrices<tied>(apart);
    const float* x_at = from.at(feature);
    float* y_at = to.at(feature);
    size_t offset = 0;
    for (uint32_t i = 0; i < count; ++i, x_at += from_next, y_at += to_next, offset += next_offset)
      for (size_t lane = 0; lane < lanes; lane += kLanes) {
        Value x[kFeatures];
#pragma GCC unroll 16
        for (size_t j = 0; j < kFeatures; ++j) x[j] = Value::load(x_at + j * from_step + lane, from_part);
        multiply_group<bits, tied, decreasing>(twiddle, offset, x);
#pragma GCC unroll 16
        for (size_t j = 0; j < kFeatures; ++j) x[j].store(y_at + j * to_step + lane, to_part);
      }
  });
}

template <bool tied, class Value>
void forward_pass(const ButterflyTile& tile, const ButterflyPass& pass, const PassGroups& groups,
                  const ColumnView& from, const ColumnView& to) {
  with_constant<kForwardBits>(pass.bits, [&](auto bits) HWY_ATTR {
    with_bool(pass.decreasing, [&](auto decreasing) HWY_ATTR {
      run_pass<bits(), tied, decreasing(), Value>(tile, pass, groups, from, to);
    });
  });
}

using ForwardPass = void (*)(const ButterflyTile&, const ButterflyPass&, const PassGroups&, const ColumnView&,
                             const ColumnView&);

inline ForwardPass forward_pass_of(const ButterflyShape& s) {
  if (s.complex) return s.tied ? forward_pass<true, ComplexValue> : forward_pass<false, ComplexValue>;
  return s.tied ? forward_pass<true, RealValue> : forward_pass<false, RealValue>;
}

// Maximum number of factors of a forward pass: complex numbers take two registers.
inline uint32_t forward_bits(const ButterflyShape& s) { return kForwardBits - (s.complex ? 1 : 0); }

// Floats [begin, begin + count) of each sample, or up to its last.
inline Samples numbers_of(const Samples& x, size_t begin, size_t count) {
  Samples part = x;
  part.features =
      begin >= x.features ? 0 : static_cast<uint32_t>(std::min<size_t>(count, x.features - begin));
  if (part.features > 0) part.data += static_cast<int64_t>(begin) * x.feature_stride;
  return part;
}

// Calls visit(number of a sample, numbers, position in columns) for each run of a unit's features.
template <class Visit>
HWY_INLINE void each_unit_run(const ButterflyShape& s, const ButterflyColumns& columns,
                              const ButterflySegment& segment, uint32_t unit, const Visit& visit) {
  const uint32_t count = segment.run() * s.parts();
  for (uint32_t run = 0; run < segment.runs(); ++run) {
    const uint32_t feature = segment.feature(unit) + (run << segment.low);
    visit(size_t{feature} * s.parts(), count, columns.at(feature));
  }
}

inline void load_unit(const ButterflyShape& s, const ButterflyColumns& columns,
                      const ButterflySegment& segment, uint32_t unit, const Samples& x, const LaneTile& tile,
                      float* to) {
  each_unit_run(s, columns, segment, unit, [&](size_t begin, uint32_t count, size_t at) HWY_ATTR {
    load_samples(numbers_of(x, begin, count), tile, count, to + at);
  });
}
inline void store_unit(const ButterflyShape& s, const ButterflyColumns& columns,
                       const ButterflySegment& segment, uint32_t unit, const float* from,
                       const LaneTile& tile, const Samples& y) {
  each_unit_run(s, columns, segment, unit, [&](size_t begin, uint32_t count, size_t at) HWY_ATTR {
    store_samples(from + at, tile, numbers_of(y, begin, count));
  });
}

// The pass of strides below a vector, from or to samples in rows, which overlaps with their transposition.
#if HWY_TARGET == HWY_AVX3
template <bool tied, bool decreasing>
HWY_INLINE void run_row_pass(const ButterflyTile& tile, const ButterflyPass& pass, const PassGroups& groups,
                             const ColumnView& columns, float* rows, size_t row_step, bool to_rows) {
  constexpr uint32_t kBits = 4, kFeatures = 16;
  static_assert(kLanes == kFeatures);
  const DotFloats d;
  const GroupTwiddle twiddle = tile.twiddle.at<tied>(pass, groups.feature);
  float *at = columns.at(groups.feature), *row = rows + groups.feature;
  size_t offset = 0;
  for (uint32_t i = 0; i < groups.high; ++i) {
    RealValue x[kFeatures];
    if (to_rows) {
#pragma GCC unroll 16
      for (size_t j = 0; j < kFeatures; ++j) x[j] = RealValue::load(at + j * kLanes, 0);
      multiply_group<kBits, tied, decreasing>(twiddle, offset, x);
      transpose_square([&](size_t j) HWY_ATTR { return x[j].v; },
                       [&](size_t j, DotVec v) HWY_ATTR { hn::StoreU(v, d, row + j * row_step); });
    } else {
      transpose_square([&](size_t j) HWY_ATTR { return hn::LoadU(d, row + j * row_step); },
                       [&](size_t j, DotVec v) HWY_ATTR { x[j].v = v; });
      multiply_group<kBits, tied, decreasing>(twiddle, offset, x);
#pragma GCC unroll 16
      for (size_t j = 0; j < kFeatures; ++j) x[j].store(at + j * kLanes, 0);
    }
    at += kFeatures * kLanes;
    row += kFeatures;
    offset += RealValue::kMatrix * group_matrices<tied>(kFeatures);
  }
}

#endif

// Whether the samples of a tile are rows that a pass can read in place.
inline bool takes_rows(const ButterflyShape& s, const ButterflyPass& pass, const Samples& x,
                       const LaneTile& tile) {
  return HWY_TARGET == HWY_AVX3 && !s.complex && pass.first == 0 && pass.bits == 4 && x.feature_stride == 1 &&
         tile.count == kLanes && x.features >= s.n();
}

inline void row_pass([[maybe_unused]] const ButterflyTile& tile, [[maybe_unused]] const ButterflyPass& pass,
                     [[maybe_unused]] const PassGroups& groups, [[maybe_unused]] const ColumnView& columns,
                     [[maybe_unused]] const Samples& rows, [[maybe_unused]] uint32_t begin,
                     [[maybe_unused]] bool to_rows) {
#if HWY_TARGET == HWY_AVX3
  with_bool(tile.twiddle.shape.tied, [&](auto tied) HWY_ATTR {
    with_bool(pass.decreasing, [&](auto decreasing) HWY_ATTR {
      run_row_pass<tied(), decreasing()>(tile, pass, groups, columns, rows.pointer_to(begin, 0),
                                         static_cast<size_t>(rows.sample_stride), to_rows);
    });
  });
#endif
}

class ButterflyForward {
 public:
  ButterflyForward(const program::Vertex& v, const ButterflyShape& shape)
      : s_(shape),
        order_(shape, forward_bits(shape)),
        columns_(shape, kButterflyLanes),
        x_(samples_of(v.fields[butterfly_forward_field::x], shape.transposed)),
        y_(samples_of(v.fields[butterfly_forward_field::y], shape.transposed)),
        twiddle_(v.fields[butterfly_forward_field::twiddle]),
        scratch_(v.fields[butterfly_forward_field::scratch].as<float>()),
        pass_(forward_pass_of(shape)) {}

  void run() const {
    for (uint32_t begin = 0; begin < y_.count; begin += kButterflyLanes)
      for (uint32_t stack = 0; stack < s_.stacks; ++stack)
        run({begin, std::min(kButterflyLanes, y_.count - begin), kButterflyLanes}, stack);
  }

 private:
  void run(const LaneTile& lanes, uint32_t stack) const {
    const uint32_t rows = s_.tied ? 1 : s_.factors(), numbers = s_.n() * s_.parts();
    const float* data = twiddle_.as<const float>() + int64_t{stack} * rows * twiddle_.row_stride;
    const ButterflyTile tile{{data, twiddle_.row_stride, s_}, lanes.lanes};
    const Samples y = numbers_of(y_, size_t{stack} * numbers, numbers);
    if (butterfly_along_features(s_, lanes.count, kLanes))
      return run_samples(FeatureButterfly(tile.twiddle, scratch_), lanes, y);
    const ColumnView columns{scratch_, columns_, lanes.lanes};
    const size_t passes = order_.passes.size();
    const bool from_rows = passes > 1 && takes_rows(s_, order_.passes.front(), x_, lanes);
    const bool to_rows = passes > 1 && takes_rows(s_, order_.passes.back(), y, lanes);
    const bool loads = passes == 0 || !(from_rows || is_in_place(x_, lanes, numbers));
    const bool stores = passes == 0 || !(to_rows || is_in_place(y, lanes, numbers));
    const ColumnView from = loads || from_rows ? columns : in_place(x_, lanes, s_.parts());
    const ColumnView to = stores || to_rows ? columns : in_place(y, lanes, s_.parts());
    for (const ButterflySegment& segment : order_.segments)
      for (uint32_t unit = 0; unit < segment.units(s_.n()); ++unit) {
        if (loads && &segment == &order_.segments.front())
          load_unit(s_, columns_, segment, unit, x_, lanes, scratch_);
        for (size_t p = segment.begin; p < segment.end; ++p) {
          const ButterflyPass& pass = order_.passes[p];
          const PassGroups groups(pass, segment, unit);
          if (p == 0 && from_rows)
            row_pass(tile, pass, groups, columns, x_, lanes.begin, false);
          else if (p + 1 == passes && to_rows)
            row_pass(tile, pass, groups, columns, y, lanes.begin, true);
          else
            pass_(tile, pass, groups, p == 0 ? from : columns, p + 1 == passes ? to : columns);
        }
        if (stores && &segment == &order_.segments.back())
          store_unit(s_, columns_, segment, unit, scratch_, lanes, y);
      }
  }

  void run_samples(const FeatureButterfly& butterfly, const LaneTile& tile, const Samples& y) const {
    for (uint32_t sample = tile.begin; sample < tile.begin + tile.count; ++sample) {
      butterfly.load(x_, sample);
      butterfly.run();
      butterfly.store(y, sample);
    }
  }

  ButterflyShape s_;
  ButterflyOrder order_;
  ButterflyColumns columns_;
  Samples x_, y_;
  FieldView twiddle_;
  float* scratch_;
  ForwardPass pass_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
