// Gradients of a butterfly: the inputs of all passes are recomputed for each tile of the batch, then the
// passes run backwards.
#if defined(TESSERA_BUTTERFLY_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BUTTERFLY_GRADIENTS_INL_H_
#undef TESSERA_BUTTERFLY_GRADIENTS_INL_H_
#else
#define TESSERA_BUTTERFLY_GRADIENTS_INL_H_
#endif

#include "kernels/common/element.h"
#include "kernels/host/butterfly/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// Destination of the gradients of a stack's twiddle.
struct GradientTarget {
  float* data = nullptr;  // null: they are not computed
  bool adds = false;
};

// The sums of a group's coefficients over lanes.
template <size_t bits, class Value>
struct GroupSums {
  static constexpr size_t kPairs = size_t{1} << (bits - 1);
  static constexpr size_t kCount = bits * kPairs * Value::kMatrix;
  static constexpr size_t kVectors = (kCount + kDotLanes - 1) / kDotLanes * kDotLanes;
  DotVec sums[kVectors];

  HWY_INLINE GroupSums() {
#pragma GCC unroll 16
    for (size_t i = 0; i < kVectors; ++i) sums[i] = hn::Zero(DotFloats());
  }
  HWY_INLINE DotVec* of(size_t level, size_t matrix) {
    return sums + (level * kPairs + matrix) * Value::kMatrix;
  }

  // Writes or adds the totals of each matrix to its position in the twiddle's gradient.
  template <bool tied>
  HWY_INLINE void finish(float* const* at, size_t step, bool adds) const {
    const hn::CappedTag<float, 4> four;
    alignas(64) float totals[kVectors];
#pragma GCC unroll 4
    for (size_t i = 0; i < kVectors; i += kDotLanes) hn::Store(totals_of(sums + i), DotFloats(), totals + i);
#pragma GCC unroll 4
    for (size_t level = 0; level < bits; ++level)
#pragma GCC unroll 2
      for (size_t matrix = 0; matrix < (tied ? size_t{1} << level : kPairs); ++matrix)
#pragma GCC unroll 2
        for (size_t i = 0; i < Value::kMatrix; i += 4) {
          float* to = at[level] + matrix * step + i;
          auto total = hn::Load(four, totals + (level * kPairs + matrix) * Value::kMatrix + i);
          if (adds) total = hn::Add(total, hn::LoadU(four, to));
          hn::StoreU(total, four, to);
        }
  }
};

// Differentiates a group of one vector of samples: x are its inputs, g the gradients of its results, which
// become the gradients of x.
template <size_t bits, bool tied, bool decreasing, class Value>
HWY_INLINE void group_backwards(const GroupTwiddle& twiddle, size_t offset, Value (*x)[size_t{1} << bits],
                                Value* g, GroupSums<bits, Value>& sums) {
  constexpr size_t kPairs = size_t{1} << (bits - 1);
#pragma GCC unroll 4
  for (size_t i = 0; i + 1 < bits; ++i) {
    const size_t level = decreasing ? bits - 1 - i : i;
#pragma GCC unroll 16
    for (size_t j = 0; j < size_t{1} << bits; ++j) x[i + 1][j] = x[i][j];
#pragma GCC unroll 8
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const GroupPair p = group_pair<tied>(level, pair);
      Value::multiply(twiddle.at[level] + offset + p.matrix * twiddle.step, x[i + 1][p.first],
                      x[i + 1][p.second]);
    }
  }
#pragma GCC unroll 4
  for (size_t i = bits; i-- > 0;) {
    const size_t level = decreasing ? bits - 1 - i : i;
#pragma GCC unroll 8
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const GroupPair p = group_pair<tied>(level, pair);
      Value::add_outer(g[p.first], g[p.second], x[i][p.first], x[i][p.second], sums.of(level, p.matrix));
      Value::multiply_transposed(twiddle.at[level] + offset + p.matrix * twiddle.step, g[p.first],
                                 g[p.second]);
    }
  }
}

// Differentiates one pass, with the gradient of its coefficients: x are its inputs, and the gradients of its
// results at `from` become gradients of its inputs at `to`.
template <size_t bits, bool tied, bool decreasing, class Value>
HWY_INLINE void run_backwards(const ButterflyTile& tile, const ButterflyPass& pass, const PassGroups& groups,
                              const ColumnView& x, const ColumnView& from, const ColumnView& to,
                              GradientTarget target) {
  constexpr size_t kFeatures = size_t{1} << bits;
  const size_t lanes = tile.lanes, x_step = x.layout.stride(pass.first);
  const size_t from_step = from.layout.stride(pass.first), to_step = to.layout.stride(pass.first);
  each_run(groups, [&](uint32_t feature, uint32_t count, uint32_t apart) HWY_ATTR {
    const GroupTwiddle twiddle = tile.twiddle.at<tied>(pass, feature);
    const size_t next_offset = Value::kMatrix * group_matrices<tied>(apart);
    float* sums_at[bits];
    for (uint32_t level = 0; level < bits; ++level)
      sums_at[level] = target.data + (twiddle.at[level] - tile.twiddle.data);
    const float *x_at = x.at(feature), *from_at = from.at(feature);
    float* to_at = to.at(feature);
    size_t offset = 0;
    for (uint32_t i = 0; i < count; ++i, offset += next_offset) {
      GroupSums<bits, Value> sums;
      for (size_t lane = 0; lane < lanes; lane += kLanes) {
        Value values[bits][kFeatures], g[kFeatures];
#pragma GCC unroll 16
        for (size_t j = 0; j < kFeatures; ++j) {
          values[0][j] = Value::load(x_at + j * x_step + lane, x.part);
          g[j] = Value::load(from_at + j * from_step + lane, from.part);
        }
        group_backwards<bits, tied, decreasing>(twiddle, offset, values, g, sums);
#pragma GCC unroll 16
        for (size_t j = 0; j < kFeatures; ++j) g[j].store(to_at + j * to_step + lane, to.part);
      }
      float* here[bits];
      for (size_t level = 0; level < bits; ++level) here[level] = sums_at[level] + offset;
      const bool adds = target.adds || (tied && feature + i * apart >= kFeatures << pass.first);
      sums.template finish<tied>(here, twiddle.step, adds);
      x_at += x.layout.width * apart;
      from_at += from.layout.width * apart;
      to_at += to.layout.width * apart;
    }
  });
}

// Differentiates one pass without the gradient of its coefficients.
template <size_t bits, bool tied, bool decreasing, class Value>
HWY_INLINE void run_transposed(const ButterflyTile& tile, const ButterflyPass& pass, const PassGroups& groups,
                               const ColumnView& from, const ColumnView& to) {
  constexpr size_t kFeatures = size_t{1} << bits;
  const size_t lanes = tile.lanes;
  const size_t from_step = from.layout.stride(pass.first), to_step = to.layout.stride(pass.first);
  each_run(groups, [&](uint32_t feature, uint32_t count, uint32_t apart) HWY_ATTR {
    const GroupTwiddle twiddle = tile.twiddle.at<tied>(pass, feature);
    const size_t next_offset = Value::kMatrix * group_matrices<tied>(apart);
    const float* from_at = from.at(feature);
    float* to_at = to.at(feature);
    size_t offset = 0;
    for (uint32_t n = 0; n < count; ++n, offset += next_offset) {
      for (size_t lane = 0; lane < lanes; lane += kLanes) {
        Value x[kFeatures];
#pragma GCC unroll 16
        for (size_t j = 0; j < kFeatures; ++j) x[j] = Value::load(from_at + j * from_step + lane, from.part);
#pragma GCC unroll 4
        for (size_t i = 0; i < bits; ++i) {
          const size_t level = decreasing ? i : bits - 1 - i;
#pragma GCC unroll 8
          for (size_t pair = 0; pair < kFeatures / 2; ++pair) {
            const GroupPair p = group_pair<tied>(level, pair);
            Value::multiply_transposed(twiddle.at[level] + offset + p.matrix * twiddle.step, x[p.first],
                                       x[p.second]);
          }
        }
#pragma GCC unroll 16
        for (size_t j = 0; j < kFeatures; ++j) x[j].store(to_at + j * to_step + lane, to.part);
      }
      from_at += from.layout.width * apart;
      to_at += to.layout.width * apart;
    }
  });
}

template <bool tied, class Value>
void backward_pass(const ButterflyTile& tile, const ButterflyPass& pass, const PassGroups& groups,
                   const ColumnView& x, const ColumnView& from, const ColumnView& to, GradientTarget target) {
  constexpr size_t kMost = Value::kMatrix == 4 ? 2 : 1;
  with_bool(pass.decreasing, [&](auto decreasing) HWY_ATTR {
    if (target.data != nullptr)
      with_constant<kMost>(pass.bits, [&](auto bits) HWY_ATTR {
        run_backwards<bits(), tied, decreasing(), Value>(tile, pass, groups, x, from, to, target);
      });
    else
      with_constant<kForwardBits>(pass.bits, [&](auto bits) HWY_ATTR {
        run_transposed<bits(), tied, decreasing(), Value>(tile, pass, groups, from, to);
      });
  });
}

using BackwardPass = void (*)(const ButterflyTile&, const ButterflyPass&, const PassGroups&,
                              const ColumnView&, const ColumnView&, const ColumnView&, GradientTarget);

inline BackwardPass backward_pass_of(const ButterflyShape& s) {
  if (s.complex) return s.tied ? backward_pass<true, ComplexValue> : backward_pass<false, ComplexValue>;
  return s.tied ? backward_pass<true, RealValue> : backward_pass<false, RealValue>;
}

class ButterflyGradients {
 public:
  ButterflyGradients(const program::Vertex& v, const ButterflyShape& shape)
      : s_(shape),
        dx_(samples_of(v.fields[butterfly_gradients_field::dx], shape.transposed)),
        dtwiddle_(v.fields[butterfly_gradients_field::dtwiddle]),
        order_(shape, dtwiddle_.empty() ? forward_bits(shape) : butterfly_gradient_bits(shape)),
        x_(samples_of(v.fields[butterfly_gradients_field::x], shape.transposed)),
        dy_(samples_of(v.fields[butterfly_gradients_field::dy], shape.transposed)),
        lanes_(butterfly_gradient_lanes(shape, dy_.count)),
        columns_(shape, lanes_),
        twiddle_(v.fields[butterfly_gradients_field::twiddle]),
        buffer_(columns_.size(shape.n())),
        g_(v.fields[butterfly_gradients_field::scratch].as<float>()),
        sum_(g_ + buffer_),
        inputs_(sum_ + (shape.stacks > 1 ? buffer_ : 0)) {}

  void run() const {
    if (dy_.count == 0) clear(dtwiddle_);
    for (uint32_t begin = 0; begin < dy_.count; begin += lanes_)
      for (uint32_t stack = 0; stack < s_.stacks; ++stack)
        run({begin, std::min(lanes_, dy_.count - begin), lanes_}, stack);
  }

 private:
  void run(const LaneTile& lanes, uint32_t stack) const {
    const int64_t row = int64_t{stack} * (s_.tied ? 1 : s_.factors());
    const float* data = twiddle_.as<const float>() + row * twiddle_.row_stride;
    const ButterflyTile tile{{data, twiddle_.row_stride, s_}, lanes.lanes};
    GradientTarget target;
    if (!dtwiddle_.empty()) {
      target = {dtwiddle_.as<float>() + row * dtwiddle_.row_stride, lanes.begin > 0};
      compute_inputs(tile, lanes);
    }
    const uint32_t numbers = s_.n() * s_.parts();
    const Samples dy = numbers_of(dy_, size_t{stack} * numbers, numbers);
    const BackwardPass pass = backward_pass_of(s_);
    const size_t passes = order_.passes.size();
    const bool loads = passes == 0 || !is_in_place(dy, lanes, numbers);
    const bool finishes = passes == 0 || s_.stacks > 1 || !is_in_place(dx_, lanes, numbers);
    const ColumnView columns = view(g_, lanes);
    const ColumnView from = loads ? columns : in_place(dy, lanes, s_.parts());
    const ColumnView to = finishes ? columns : in_place(dx_, lanes, s_.parts());
    for (size_t i = order_.segments.size(); i-- > 0;) {
      const ButterflySegment& segment = order_.segments[i];
      for (uint32_t unit = 0; unit < segment.units(s_.n()); ++unit) {
        if (loads && i + 1 == order_.segments.size()) load_unit(s_, columns_, segment, unit, dy, lanes, g_);
        for (size_t p = segment.end; p-- > segment.begin;)
          pass(tile, order_.passes[p], PassGroups(order_.passes[p], segment, unit), input(p, lanes),
               p + 1 == passes ? from : columns, p == 0 ? to : columns, target);
        if (finishes && i == 0) finish_unit(segment, unit, lanes, stack);
      }
    }
  }

  ColumnView view(float* buffer, const LaneTile& lanes) const { return {buffer, columns_, lanes.lanes}; }
  float* buffer(size_t pass) const { return inputs_ + pass * buffer_; }
  bool loads_input(const LaneTile& lanes) const {
    return order_.passes.empty() || !is_in_place(x_, lanes, size_t{s_.n()} * s_.parts());
  }
  ColumnView input(size_t pass, const LaneTile& lanes) const {
    return pass == 0 && !loads_input(lanes) ? in_place(x_, lanes, s_.parts()) : view(buffer(pass), lanes);
  }

  // Computes the inputs of all passes.
  void compute_inputs(const ButterflyTile& tile, const LaneTile& lanes) const {
    const ForwardPass pass = forward_pass_of(s_);
    const bool loads = loads_input(lanes);
    for (const ButterflySegment& segment : order_.segments)
      for (uint32_t unit = 0; unit < segment.units(s_.n()); ++unit) {
        if (loads && segment.begin == 0) load_unit(s_, columns_, segment, unit, x_, lanes, buffer(0));
        for (size_t p = segment.begin; p < segment.end && p + 1 < order_.passes.size(); ++p)
          pass(tile, order_.passes[p], PassGroups(order_.passes[p], segment, unit), input(p, lanes),
               input(p + 1, lanes));
      }
  }

  // Adds the gradients of a unit to dx, which is the sum over the stacks.
  void finish_unit(const ButterflySegment& segment, uint32_t unit, const LaneTile& lanes,
                   uint32_t stack) const {
    if (dx_.features == 0) return;
    if (stack > 0 || s_.stacks > 1)
      each_unit_run(s_, columns_, segment, unit, [&](size_t, uint32_t count, size_t at) HWY_ATTR {
        const DotFloats d;
        for (size_t k = at; k < at + size_t{count} * lanes_; k += kLanes) {
          const auto g = hn::Load(d, g_ + k);
          hn::Store(stack == 0 ? g : hn::Add(hn::Load(d, sum_ + k), g), d, sum_ + k);
        }
      });
    if (stack + 1 == s_.stacks)
      store_unit(s_, columns_, segment, unit, s_.stacks > 1 ? sum_ : g_, lanes, dx_);
  }

  ButterflyShape s_;
  Samples dx_;
  FieldView dtwiddle_;
  ButterflyOrder order_;
  Samples x_, dy_;
  uint32_t lanes_;
  ButterflyColumns columns_;
  FieldView twiddle_;
  size_t buffer_;
  float *g_, *sum_, *inputs_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
