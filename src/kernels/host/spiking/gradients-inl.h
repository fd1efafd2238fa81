// Gradients of a spiking layer: a block of samples, a strip of neurons, a sample. Its gradients in all steps
// lie in the L1 cache, where spikes, sorted by their neurons, add them up to those of the weights.
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

#include "kernels/host/spiking/backward_steps-inl.h"
#include "kernels/host/spiking/sorted-inl.h"
#include "kernels/host/spiking/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {
namespace hn = hwy::HWY_NAMESPACE;

using program::FieldView;

class SpikingGradients {
 public:
  explicit SpikingGradients(const program::Vertex& v)
      : f_(v.fields),
        neuron_(v.params),
        shape_(spiking_shape(v, f_[field::in_num], f_[field::weight], f_[field::dynamics])),
        delay_(static_cast<uint32_t>(v.params[spiking_param::delay])),
        layout_(shape_),
        scratch_(f_[field::scratch].as<float>()),
        width_(f_[field::weight].cols),
        strips_(strips_of(shape_.neurons)),
        in_{f_[field::in_ids], f_[field::in_num], shape_.in_capacity},
        own_{f_[field::ids], f_[field::num], shape_.capacity},
        steps_(v, neuron_, shape_, scratch_ + layout_.carried, layout_.columns),
        is_plain_(!neuron_.synaptic && !neuron_.adaptive && !neuron_.attaches() &&
                  !(neuron_.is_late() && neuron_.gates()) && f_[field::ddynamics].empty()) {}

  void run() const {
    const FieldView &dweight = f_[field::dweight], &ddynamics = f_[field::ddynamics];
    std::fill_n(dweight.as<float>(), dweight.elements(), 0.0F);
    for (uint32_t r = 0; r < ddynamics.rows; ++r)
      std::fill_n(ddynamics.as<float>() + r * ddynamics.row_stride, ddynamics.cols, 0.0F);
    for (uint32_t first = 0; first < shape_.batch; first += layout_.samples)
      run_block(first, std::min(layout_.samples, shape_.batch - first));
  }

 private:
  struct field {
    enum : size_t { TESSERA_SPIKING_GRADIENTS_FIELDS(TESSERA_POSITION) count };
  };

  template <class T>
  T* at(size_t position) const {
    return reinterpret_cast<T*>(scratch_ + position);
  }
  bool has_din() const { return !f_[field::din].empty(); }
  // Floats between the gradients of two steps.
  uint32_t row_floats() const { return shape_.recurrent ? layout_.columns : kStrip; }

  void run_block(uint32_t first, uint32_t samples) const {
    for (uint32_t s = 0; s < samples; ++s) {
      const uint32_t b = first + s;
      sort_spikes(in_, b, {delay_, row_floats()}, shape_.inputs, sorted(layout_.in, s));
      if (has_din()) sort_listed(b, s);
      if (shape_.recurrent) {
        sort_spikes(own_, b, {1, row_floats()}, shape_.neurons, sorted(layout_.own, s));
        run_recurrent_steps(b, s);
      } else if (neuron_.spikes) {
        sort_by_strip(b, s);
      }
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
      run_steps<vectors>(strip, k, b, s, gradient);
    }
    const size_t panel = size_t{strip.panel} * shape_.sources() * width_ + strip.column;
    float* dweight = f_[field::dweight].as<float>() + panel;
    add_outer<vectors>(gradient, sorted(layout_.in, s), dweight);
    if (shape_.recurrent)
      add_outer<vectors>(gradient, sorted(layout_.own, s), dweight + size_t{shape_.inputs} * width_);
    if (has_din()) add_dots<vectors>(gradient, f_[field::weight].as<const float>() + panel, s);
  }

  SortedSpikes sorted(const SpikingSortedScratch& of, uint32_t s) const {
    return {at<uint32_t>(of.steps) + s * of.room, at<uint32_t>(of.sources_at) + s * of.source_room,
            at<uint32_t>(of.ends) + s * of.source_room, at<uint32_t>(of.counts) + s};
  }

  void sort_spikes(const SpikeLists& lists, uint32_t b, const Arrival& arrival, uint32_t sources,
                   const SortedSpikes& to) const {
    SpikeSorter(shape_.steps, at<uint32_t>(layout_.counters)).sort(lists, b, arrival, sources, width_, to);
  }

  // Listed inputs, in the order of their neurons.
  void sort_listed(uint32_t b, uint32_t s) const {
    const size_t first = s * layout_.in_room;
    const ListedInputs to{at<uint32_t>(layout_.listed_weights) + first,
                          at<uint32_t>(layout_.listed_steps) + first,
                          at<uint32_t>(layout_.listed_places) + first};
    const uint32_t count = SpikeSorter(shape_.steps, at<uint32_t>(layout_.counters))
                               .sort_listed(in_, b, {delay_, row_floats()}, shape_.inputs, width_, to);
    at<uint32_t>(layout_.listed_counts)[s] = count;
    // Vectors of entries are whole: what follows the last is like it.
    for (uint32_t e = count; count > 0 && e < count + kLanes; ++e) {
      to.weights[e] = to.weights[count - 1];
      to.steps[e] = to.steps[count - 1];
    }
    std::fill_n(at<float>(layout_.listed_sums) + first, count + kLanes, 0.0F);
  }

  // Gradients of the listed neurons of a layer, strip by strip.
  void sort_by_strip(uint32_t b, uint32_t s) const {
    uint32_t* begin = at<uint32_t>(layout_.bucket_begin) + size_t{s} * (layout_.strips + 1);
    std::fill_n(begin, strips_ + 1, 0U);
    for (uint32_t t = 0; t < shape_.steps; ++t) {
      const uint16_t* ids = own_.row(t, b);
      for (uint32_t e = 0, count = own_.listed(t, b); e < count; ++e) ++begin[ids[e] / kStrip + 1];
    }
    for (uint32_t k = 0; k < strips_; ++k) begin[k + 1] += begin[k];
    uint32_t next[kSpikingMaxStrips];
    std::copy_n(begin, strips_, next);
    const size_t first = s * layout_.own_room;
    uint32_t* places = at<uint32_t>(layout_.bucket_places) + first;
    float* gradients = at<float>(layout_.bucket_gradients) + first;
    float* derivatives = at<float>(layout_.bucket_derivatives) + first;
    const float factor = is_plain_ ? neuron_.gain : 1;
    for (uint32_t t = 0; t < shape_.steps; ++t) {
      const uint16_t* ids = own_.row(t, b);
      const float *of = list_row(f_[field::surrogate], t, b), *upstream = list_row(f_[field::upstream], t, b);
      for (uint32_t e = 0, count = own_.listed(t, b); e < count; ++e) {
        const uint32_t to = next[ids[e] / kStrip]++;
        places[to] = t * kStrip + ids[e] % kStrip;
        gradients[to] = is_plain_ ? factor * of[e] * upstream[e] : upstream[e];
        if (!is_plain_) derivatives[to] = of[e];
      }
    }
  }

  const float* list_row(const FieldView& field, uint32_t t, uint32_t b) const {
    return field.as<const float>() + t * field.row_stride + size_t{b} * shape_.capacity;
  }

  // The gradients of a strip in all steps of a sample.
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
    const uint32_t* begin = at<uint32_t>(layout_.bucket_begin) + size_t{s} * (layout_.strips + 1) + k;
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

  // All strips of a recurrent layer, step by step.
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

  // What the weights of a neuron to all others, times their gradients, come to.
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

  // dW of each source that fired: the sum of the gradients in the steps in which it did.
  template <uint32_t vectors>
  HWY_INLINE void add_outer(const float* HWY_RESTRICT gradient, const SortedSpikes& spikes,
                            float* HWY_RESTRICT dweight) const {
    const Floats d;
    const uint32_t* step = spikes.steps;
    for (uint32_t i = 0, count = *spikes.count; i < count; ++i) {
      float* row = dweight + spikes.sources[i];
      Lane sum[vectors];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < vectors; ++j) sum[j] = hn::LoadU(d, row + j * kLanes);
      for (const uint32_t* end = spikes.steps + spikes.ends[i]; step < end; ++step) {
        const float* from = gradient + *step;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < vectors; ++j) sum[j] = hn::Add(sum[j], hn::Load(d, from + j * kLanes));
      }
#pragma GCC unroll 4
      for (uint32_t j = 0; j < vectors; ++j) hn::StoreU(sum[j], d, row + j * kLanes);
    }
  }

  // The gradients of listed inputs: as many at a time as a vector has lanes.
  template <uint32_t vectors>
  HWY_INLINE void add_dots(const float* HWY_RESTRICT gradient, const float* HWY_RESTRICT weight,
                           uint32_t s) const {
    const Floats d;
    const size_t first = s * layout_.in_room;
    const uint32_t* weights = at<uint32_t>(layout_.listed_weights) + first;
    const uint32_t* steps = at<uint32_t>(layout_.listed_steps) + first;
    float* sums = at<float>(layout_.listed_sums) + first;
    const uint32_t count = at<uint32_t>(layout_.listed_counts)[s];
    for (uint32_t e = 0; e < count; e += kLanes) {
      Lane dots[kLanes];
#pragma GCC unroll 16
      for (uint32_t i = 0; i < kLanes; ++i) {
        const float *w = weight + weights[e + i], *g = gradient + steps[e + i];
        dots[i] = hn::Mul(hn::LoadU(d, w), hn::Load(d, g));
#pragma GCC unroll 4
        for (uint32_t j = 1; j < vectors; ++j)
          dots[i] = hn::MulAdd(hn::LoadU(d, w + j * kLanes), hn::Load(d, g + j * kLanes), dots[i]);
      }
      hn::StoreU(hn::Add(hn::LoadU(d, sums + e), sums_of(dots)), d, sums + e);
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
    // Of spikes that arrive after the last step: nothing.
    for (uint32_t t = shape_.steps - std::min(shape_.steps, delay_); t < shape_.steps; ++t)
      std::fill_n(of_sample + t * din.row_stride, in_.listed(t, b), 0.0F);
    const size_t first = s * layout_.in_room;
    const uint32_t* places = at<uint32_t>(layout_.listed_places) + first;
    const float* sums = at<float>(layout_.listed_sums) + first;
    const uint32_t count = at<uint32_t>(layout_.listed_counts)[s];
    for (uint32_t e = 0; e < count; ++e)
      of_sample[places[e] / shape_.in_capacity * din.row_stride + places[e] % shape_.in_capacity] = sums[e];
  }

  const std::span<const FieldView> f_;
  const SpikingNeuron neuron_;
  const SpikingShape shape_;
  const uint32_t delay_;
  const SpikingGradientsScratch layout_;
  float* const scratch_;
  const uint32_t width_;
  const uint32_t strips_;
  const SpikeLists in_;
  const SpikeLists own_;
  const BackwardSteps steps_;
  const bool is_plain_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
