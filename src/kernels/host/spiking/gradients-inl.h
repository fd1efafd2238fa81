// Gradients of a spiking layer. Loops from outside to inside: blocks of samples, strips of neurons, samples.
// The gradients of a strip in all steps lie in the L1 cache, where spikes, sorted by neuron, add them to the
// gradients of the weights.
#if defined(TESSERA_SPIKING_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_GRADIENTS_INL_H_
#undef TESSERA_SPIKING_GRADIENTS_INL_H_
#else
#define TESSERA_SPIKING_GRADIENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/element.h"
#include "kernels/host/spiking/backward_steps-inl.h"
#include "kernels/host/spiking/sorted-inl.h"
#include "kernels/host/spiking/strip-inl.h"
#include "kernels/host/spiking/vertex-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {
namespace hn = hwy::HWY_NAMESPACE;

using program::FieldView;

class SpikingGradients : SpikingVertex {
  struct field {
    enum : size_t { TESSERA_SPIKING_GRADIENTS_FIELDS(TESSERA_POSITION) count };
  };

 public:
  explicit SpikingGradients(const program::Vertex& v)
      : SpikingVertex(v, {field::in_ids, field::in_num, field::weight, field::dynamics, field::scratch}),
        layout_(shape_),
        own_{f_[field::ids], f_[field::num], shape_.capacity},
        steps_(v, neuron_, shape_, scratch_ + layout_.carried, layout_.columns),
        is_plain_(!neuron_.synaptic && !neuron_.adaptive && !neuron_.attaches() &&
                  !(neuron_.is_late() && neuron_.gates()) && f_[field::ddynamics].empty()) {}

  void run() const {
    kernels::clear(f_[field::dweight]);
    kernels::clear(f_[field::ddynamics]);
    for (uint32_t first = 0; first < shape_.batch; first += layout_.samples)
      run_block(first, std::min(layout_.samples, shape_.batch - first));
  }

 private:
  bool has_din() const { return !f_[field::din].empty(); }
  // Distance of the gradients of consecutive steps, in floats.
  uint32_t row_floats() const { return shape_.recurrent ? layout_.columns : kStrip; }

  SpikeSorter in_sorter() const {
    return {layout_.in, scratch_, shape_.steps, shape_.inputs, width_, {delay_, row_floats()}};
  }
  SpikeSorter own_sorter() const {
    return {layout_.own, scratch_, shape_.steps, shape_.neurons, width_, {1, row_floats()}};
  }

  void run_block(uint32_t first, uint32_t samples) const {
    in_sorter().sort(in_, first, samples, f_[field::din]);
    if (has_din()) clear_sums(samples);
    if (shape_.recurrent) {
      own_sorter().sort(own_, first, samples, FieldView{});
      for (uint32_t s = 0; s < samples; ++s) run_recurrent_steps(first + s, s);
    } else if (neuron_.spikes) {
      sort_by_strip(first, samples);
    }
    for (uint32_t k = 0; k < strips_; ++k) {
      const Strip strip(k, shape_.neurons, width_);
      with_vectors(strip.vectors(), [&](auto vectors) HWY_ATTR {
        for (uint32_t s = 0; s < samples; ++s) run_strip<vectors()>(strip, k, first + s, s);
      });
    }
    if (has_din())
      for (uint32_t s = 0; s < samples; ++s) store_din(first + s, s);
  }

  template <uint32_t vectors>
  HWY_NOINLINE void run_strip(const Strip& strip, uint32_t k, uint32_t b, uint32_t s) const {
    float* gradient = at<float>(layout_.gradient);
    if (shape_.recurrent) {
      gradient += s * (size_t{shape_.steps} + 1) * layout_.columns + strip.begin;
    } else {
      clear(gradient + size_t{shape_.steps} * kStrip, kStrip);
      run_steps<vectors>(strip, k, b, s, gradient);
    }
    const size_t panel = size_t{strip.panel} * shape_.sources() * width_ + strip.column;
    float* dweight = f_[field::dweight].as<float>() + panel;
    const float* weight = f_[field::weight].as<const float>() + panel;
    if (has_din()) {
      add_pairs<vectors, true>(gradient, in_sorter().pairs(s), dweight, weight, pair_sums(s));
      add_others<vectors>(gradient, in_sorter().others(s), weight, other_sums(s));
    } else {
      add_pairs<vectors, false>(gradient, in_sorter().pairs(s), dweight, nullptr, nullptr);
    }
    if (shape_.recurrent)
      add_pairs<vectors, false>(gradient, own_sorter().pairs(s), dweight + size_t{shape_.inputs} * width_,
                                nullptr, nullptr);
  }

  float* pair_sums(uint32_t s) const { return at<float>(layout_.pair_sums) + 2 * s * layout_.in.pair_room; }
  float* other_sums(uint32_t s) const { return at<float>(layout_.other_sums) + s * layout_.in.room; }

  void clear_sums(uint32_t samples) const {
    for (uint32_t s = 0; s < samples; ++s) {
      std::fill_n(pair_sums(s), 2 * size_t{*in_sorter().pairs(s).count} + kLanes, 0.0F);
      std::fill_n(other_sums(s), *in_sorter().others(s).count + kLanes, 0.0F);
    }
  }

  // Sorts the gradients of a layer's listed neurons by strip.
  void sort_by_strip(uint32_t first, uint32_t samples) const {
    const size_t begin_room = size_t{layout_.strips} + 2;
    std::fill_n(at<uint32_t>(layout_.bucket_begin), samples * begin_room, 0U);
    std::fill_n(at<uint32_t>(layout_.flat_counts), samples, 0U);
    const float factor = is_plain_ ? neuron_.gain : 1;
    for (uint32_t t = 0; t < shape_.steps; ++t)
      for (uint32_t s = 0; s < samples; ++s) {
        const uint32_t b = first + s, count = own_.listed(t, b);
        uint32_t& filled = at<uint32_t>(layout_.flat_counts)[s];
        const size_t to = s * layout_.own_room + filled;
        const uint16_t* HWY_RESTRICT ids = own_.row(t, b);
        const float* HWY_RESTRICT of = list_row(f_[field::surrogate], t, b);
        const float* HWY_RESTRICT upstream = list_row(f_[field::upstream], t, b);
        uint32_t* HWY_RESTRICT places = at<uint32_t>(layout_.flat_places) + to;
        float* HWY_RESTRICT gradients = at<float>(layout_.flat_gradients) + to;
        float* HWY_RESTRICT derivatives = at<float>(layout_.flat_derivatives) + to;
        uint32_t* HWY_RESTRICT counters = at<uint32_t>(layout_.bucket_begin) + s * begin_room + 2;
        for (uint32_t e = 0; e < count; ++e) {
          places[e] = t << 16 | ids[e];
          gradients[e] = is_plain_ ? factor * of[e] * upstream[e] : upstream[e];
          if (!is_plain_) derivatives[e] = of[e];
          ++counters[ids[e] / kStrip];
        }
        filled += count;
      }
    for (uint32_t s = 0; s < samples; ++s)
      fill_buckets(s, at<uint32_t>(layout_.bucket_begin) + s * begin_room);
  }

  // begin[k + 2] is the number of entries of strip k, and begin[k] becomes its first.
  void fill_buckets(uint32_t s, uint32_t* begin) const {
    for (uint32_t k = 0; k < strips_; ++k) begin[k + 2] += begin[k + 1];
    const size_t first = s * layout_.own_room;
    const uint32_t* HWY_RESTRICT flat = at<uint32_t>(layout_.flat_places) + first;
    const float* HWY_RESTRICT flat_gradients = at<float>(layout_.flat_gradients) + first;
    const float* HWY_RESTRICT flat_derivatives = at<float>(layout_.flat_derivatives) + first;
    uint32_t* HWY_RESTRICT places = at<uint32_t>(layout_.bucket_places) + first;
    float* HWY_RESTRICT gradients = at<float>(layout_.bucket_gradients) + first;
    float* HWY_RESTRICT derivatives = at<float>(layout_.bucket_derivatives) + first;
    for (uint32_t i = 0, count = at<uint32_t>(layout_.flat_counts)[s]; i < count; ++i) {
      const uint32_t id = flat[i] & 0xFFFF, to = begin[id / kStrip + 1]++;
      places[to] = (flat[i] >> 16) * kStrip + id % kStrip;
      gradients[to] = flat_gradients[i];
      if (!is_plain_) derivatives[to] = flat_derivatives[i];
    }
  }

  const float* list_row(const FieldView& field, uint32_t t, uint32_t b) const {
    return field.as<const float>() + t * field.row_stride + size_t{b} * shape_.capacity;
  }

  // Computes the gradients of a strip in all steps of a sample.
  template <uint32_t vectors>
  HWY_INLINE void run_steps(const Strip& strip, uint32_t k, uint32_t b, uint32_t s, float* gradient) const {
    const Floats d;
    float* derivative = at<float>(layout_.derivative);
    if (neuron_.spikes) {
      const size_t floats = size_t{shape_.steps} * kStrip;
      clear(gradient, floats);
      if (!is_plain_) clear(derivative, floats);
      scatter(k, s, gradient, derivative);
    } else {
      load_potential_gradients<vectors>(strip, b, gradient);
    }
    if (is_plain_) return steps_.run_plain<vectors>(strip, b, gradient);
    steps_.start(strip);
    for (uint32_t t = shape_.steps; t-- > 0;) {
      Lane ds[vectors], of[vectors], dx[vectors];
      for (uint32_t j = 0; j < vectors; ++j) {
        ds[j] = hn::Load(d, gradient + t * kStrip + j * kLanes);
        of[j] = neuron_.spikes ? hn::Load(d, derivative + t * kStrip + j * kLanes) : hn::Zero(d);
      }
      steps_.step<vectors>(strip, b, t, ds, of, dx);
      for (uint32_t j = 0; j < vectors; ++j) hn::Store(dx[j], d, gradient + t * kStrip + j * kLanes);
    }
  }

  static HWY_INLINE void clear(float* to, size_t floats) {
    const Floats d;
    for (size_t i = 0; i < floats; i += kLanes) hn::Store(hn::Zero(d), d, to + i);
  }

  void scatter(uint32_t k, uint32_t s, float* gradient, float* derivative) const {
    const uint32_t* begin = at<uint32_t>(layout_.bucket_begin) + s * (size_t{layout_.strips} + 2) + k;
    const size_t first = s * layout_.own_room;
    const uint32_t* places = at<uint32_t>(layout_.bucket_places) + first;
    const float* gradients = at<float>(layout_.bucket_gradients) + first;
    const float* derivatives = at<float>(layout_.bucket_derivatives) + first;
    for (uint32_t e = begin[0]; e < begin[1]; ++e) gradient[places[e]] = gradients[e];
    if (is_plain_) return;
    for (uint32_t e = begin[0]; e < begin[1]; ++e) derivative[places[e]] = derivatives[e];
  }

  template <uint32_t vectors>
  HWY_INLINE void load_potential_gradients(const Strip& strip, uint32_t b, float* gradient) const {
    const FieldView& upstream = f_[field::upstream];
    const Lane factor = set(is_plain_ ? neuron_.gain : 1);
    for (uint32_t t = 0; t < shape_.steps; ++t) {
      const float* row =
          upstream.as<const float>() + t * upstream.row_stride + size_t{b} * shape_.neurons + strip.begin;
      for (uint32_t j = 0; j < vectors; ++j)
        hn::Store(hn::Mul(factor, load_some(row + j * kLanes, strip.count - j * kLanes)), Floats(),
                  gradient + t * kStrip + j * kLanes);
    }
  }

  // Computes all strips of a recurrent layer, step by step.
  void run_recurrent_steps(uint32_t b, uint32_t s) const {
    const uint32_t columns = layout_.columns;
    float* gradient = at<float>(layout_.gradient) + s * (size_t{shape_.steps} + 1) * columns;
    float *upstream = at<float>(layout_.upstream), *derivative = at<float>(layout_.derivative);
    clear(gradient + size_t{shape_.steps} * columns, columns);
    for (uint32_t k = 0; k < strips_; ++k) steps_.start(Strip(k, shape_.neurons, width_));
    for (uint32_t t = shape_.steps; t-- > 0;) {
      clear(upstream, columns);
      clear(derivative, columns);
      const float* later = gradient + size_t{t + 1} * columns;
      const uint16_t* ids = own_.row(t, b);
      for (uint32_t e = 0, count = own_.listed(t, b); e < count; ++e) {
        upstream[ids[e]] = list_row(f_[field::upstream], t, b)[e] + recurrent_dot(ids[e], later);
        derivative[ids[e]] = list_row(f_[field::surrogate], t, b)[e];
      }
      for (uint32_t k = 0; k < strips_; ++k) {
        const Strip strip(k, shape_.neurons, width_);
        with_vectors(strip.vectors(), [&](auto vectors) HWY_ATTR {
          const Floats d;
          Lane ds[vectors()], of[vectors()], dx[vectors()];
          for (uint32_t j = 0; j < vectors(); ++j) {
            ds[j] = hn::Load(d, upstream + strip.begin + j * kLanes);
            of[j] = hn::Load(d, derivative + strip.begin + j * kLanes);
          }
          steps_.step<vectors()>(strip, b, t, ds, of, dx);
          for (uint32_t j = 0; j < vectors(); ++j)
            hn::Store(dx[j], d, gradient + size_t{t} * columns + strip.begin + j * kLanes);
        });
      }
    }
  }

  // The sum over all neurons of the weight from neuron `id` times the neuron's gradient.
  HWY_INLINE float recurrent_dot(uint32_t id, const float* gradient) const {
    const Floats d;
    Lane sum = hn::Zero(d);
    const float* weights = f_[field::weight].as<const float>() + (size_t{shape_.inputs} + id) * width_;
    const size_t panel = size_t{shape_.sources()} * width_;
    for (uint32_t n = 0; n < shape_.neurons; n += width_, weights += panel)
      for (uint32_t i = 0; i < std::min(width_, shape_.neurons - n); i += kLanes)
        sum = hn::MulAdd(hn::LoadU(d, weights + i), hn::Load(d, gradient + n + i), sum);
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }

  // Adds to dW of each source that fired the sum of the gradients in the steps in which it fired. With
  // `dots`, also adds the dot products of its weights and these gradients to `sums`, for one spike per lane
  // at a time.
  template <uint32_t vectors, bool dots>
  HWY_INLINE void add_pairs(const float* HWY_RESTRICT gradient, const SpikePairs& pairs,
                            float* HWY_RESTRICT dweight, const float* HWY_RESTRICT weight,
                            float* HWY_RESTRICT sums) const {
    const Floats d;
    for (uint32_t p = 0, count = *pairs.count; p < count; p += kPairs) {
      Lane dot[kLanes];
#pragma GCC unroll 8
      for (uint32_t i = 0; i < kPairs; ++i) {
        const uint32_t source = pairs.sources[p + i];
        const float *one = gradient + pairs.steps[2 * (p + i)],
                    *other = gradient + pairs.steps[2 * (p + i) + 1];
        float* row = dweight + source;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < vectors; ++j) {
          const Lane a = hn::Load(d, one + j * kLanes), b = hn::Load(d, other + j * kLanes);
          hn::StoreU(hn::Add(hn::LoadU(d, row + j * kLanes), hn::Add(a, b)), d, row + j * kLanes);
          if (!dots) continue;
          const Lane w = hn::LoadU(d, weight + source + j * kLanes);
          dot[2 * i] = j == 0 ? hn::Mul(w, a) : hn::MulAdd(w, a, dot[2 * i]);
          dot[2 * i + 1] = j == 0 ? hn::Mul(w, b) : hn::MulAdd(w, b, dot[2 * i + 1]);
        }
      }
      if (dots) hn::StoreU(hn::Add(hn::LoadU(d, sums + 2 * p), sums_of(dot)), d, sums + 2 * p);
    }
  }

  // Adds the dot products of weights and gradients for listed neurons that did not fire.
  template <uint32_t vectors>
  HWY_INLINE void add_others(const float* HWY_RESTRICT gradient, const OtherListed& listed,
                             const float* HWY_RESTRICT weight, float* HWY_RESTRICT sums) const {
    const Floats d;
    for (uint32_t e = 0, count = *listed.count; e < count; e += kLanes) {
      Lane dot[kLanes];
#pragma GCC unroll 16
      for (uint32_t i = 0; i < kLanes; ++i) {
        const float *w = weight + listed.sources[e + i], *g = gradient + listed.steps[e + i];
        dot[i] = hn::Mul(hn::LoadU(d, w), hn::Load(d, g));
#pragma GCC unroll 4
        for (uint32_t j = 1; j < vectors; ++j)
          dot[i] = hn::MulAdd(hn::LoadU(d, w + j * kLanes), hn::Load(d, g + j * kLanes), dot[i]);
      }
      hn::StoreU(hn::Add(hn::LoadU(d, sums + e), sums_of(dot)), d, sums + e);
    }
  }

  // The sum of each vector, in its lane.
  static HWY_INLINE Lane sums_of(Lane* v) {
    const Floats d;
#pragma GCC unroll 4
    for (size_t n = kLanes / 2; n > 0; n /= 2)
#pragma GCC unroll 8
      for (size_t i = 0; i < n; ++i)
        v[i] = hn::Add(hn::ConcatEven(d, v[2 * i + 1], v[2 * i]), hn::ConcatOdd(d, v[2 * i + 1], v[2 * i]));
    return v[0];
  }

  void store_din(uint32_t b, uint32_t s) const {
    const FieldView& din = f_[field::din];
    float* of_sample = din.as<float>() + size_t{b} * shape_.in_capacity;
    // Spikes that arrive after the last step have no gradient.
    for (uint32_t t = shape_.steps - std::min(shape_.steps, delay_); t < shape_.steps; ++t)
      std::fill_n(of_sample + t * din.row_stride, in_.listed(t, b), 0.0F);
    const SpikePairs pairs = in_sorter().pairs(s);
    // The empty place of an odd pair is the place of its spike, which is therefore written last.
    for (uint32_t i = 2 * *pairs.count; i-- > 0;) din.as<float>()[pairs.places[i]] = pair_sums(s)[i];
    const OtherListed listed = in_sorter().others(s);
    for (uint32_t i = 0; i < *listed.count; ++i) din.as<float>()[listed.places[i]] = other_sums(s)[i];
  }

  const SpikingGradientsScratch layout_;
  const SpikeLists own_;
  const BackwardSteps steps_;
  const bool is_plain_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
