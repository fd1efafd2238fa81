// Lists of spikes from the neurons that passed ϑ_grad in a step.
#if defined(TESSERA_SPIKING_LISTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_LISTS_INL_H_
#undef TESSERA_SPIKING_LISTS_INL_H_
#else
#define TESSERA_SPIKING_LISTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/spiking/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {
namespace hn = hwy::HWY_NAMESPACE;

// Working memory: the listed neurons, and the neurons among them that did not fire.
struct FoundLists {
  uint32_t* listed_ids;
  float* listed_distances;
  uint32_t* other_ids;
  float* other_distances;
};

class ListWriter {
 public:
  ListWriter(const program::Vertex& v, const SpikingNeuron& neuron, const SpikingShape& shape)
      : f_(v.fields), neuron_(neuron), shape_(shape), overflow_(spiking_overflow(v)) {
    gradient_threshold_ = *f_[spiking_forward_field::gradient_threshold].as<const float>();
    const program::FieldView& dynamics = f_[spiking_forward_field::dynamics];
    const auto* threshold = dynamics.as<const float>() + 2 * dynamics.row_stride;
    spikes_pass_ =
        std::all_of(threshold, threshold + shape.neurons, [&](float of) { return of > gradient_threshold_; });
  }

  void clear_dropped() const { clear(f_[spiking_forward_field::dropped]); }

  // Writes the list of step t of sample b, and returns the number of its spikes, which come first.
  uint32_t add(const uint16_t* ids, const float* distances, uint32_t count, uint32_t t, uint32_t b,
               const FoundLists& lists) {
    uint32_t spikes = 0, others = 0;
    split(ids, distances, count, lists, spikes, others);
    const auto* other_ids = lists.other_ids;
    const auto* other_distances = lists.other_distances;
    append(other_ids, other_distances, others, lists.listed_ids + spikes, lists.listed_distances + spikes);
    uint32_t listed = spikes + others;
    overflow_.drop(t, b, spikes, listed, [&](uint32_t to, uint32_t from) {
      lists.listed_ids[to] = lists.listed_ids[from];
      lists.listed_distances[to] = lists.listed_distances[from];
    });
    write(lists, spikes, listed, t, b);
    return spikes;
  }

 private:
  void split(const uint16_t* ids, const float* distances, uint32_t count, const FoundLists& lists,
             uint32_t& spikes, uint32_t& others) const {
    const Floats d;
    const hn::RebindToUnsigned<Floats> du;
    const hn::Rebind<uint16_t, Floats> d16;
    const Lane zero = hn::Zero(d);
    for (uint32_t i = 0; i < count; i += kLanes) {
      const Lane x = hn::LoadU(d, distances + i);
      const auto id = hn::PromoteTo(du, hn::LoadU(d16, ids + i));
      const auto valid = hn::FirstN(d, count - i);
      const auto fired = reaches(x, zero, neuron_.fires_at_threshold);
      const auto fires = hn::And(valid, fired), rest = hn::AndNot(fired, valid);
      hn::StoreU(hn::Compress(x, fires), d, lists.listed_distances + spikes);
      hn::StoreU(hn::Compress(id, hn::RebindMask(du, fires)), du, lists.listed_ids + spikes);
      hn::StoreU(hn::Compress(x, rest), d, lists.other_distances + others);
      hn::StoreU(hn::Compress(id, hn::RebindMask(du, rest)), du, lists.other_ids + others);
      spikes += static_cast<uint32_t>(hn::CountTrue(d, fires));
      others += static_cast<uint32_t>(hn::CountTrue(d, rest));
    }
  }

  static void append(const uint32_t* ids, const float* distances, uint32_t count, uint32_t* to_ids,
                     float* to_distances) {
    const Floats d;
    const hn::RebindToUnsigned<Floats> du;
    for (uint32_t i = 0; i < count; i += kLanes) {
      hn::StoreU(hn::LoadU(d, distances + i), d, to_distances + i);
      hn::StoreU(hn::LoadU(du, ids + i), du, to_ids + i);
    }
  }

  void write(const FoundLists& lists, uint32_t spikes, uint32_t listed, uint32_t t, uint32_t b) const {
    using namespace spiking_forward_field;
    auto* num_at = f_[num].as<uint32_t>() + t * f_[num].row_stride + 2 * size_t{b};
    num_at[0] = spikes;
    num_at[1] = listed;
    auto* to = f_[spiking_forward_field::ids].as<uint16_t>() + t * f_[spiking_forward_field::ids].row_stride +
               size_t{b} * shape_.capacity;
    for (uint32_t i = 0; i < listed; ++i) to[i] = static_cast<uint16_t>(lists.listed_ids[i]);
    const program::FieldView& derivatives = f_[spiking_forward_field::surrogate];
    if (derivatives.empty()) return;
    float* from = derivatives.as<float>() + t * derivatives.row_stride + size_t{b} * shape_.capacity;
    for (uint32_t i = 0; i < listed; i += kLanes)
      store_some(masked_derivative(lists, i), from + i, listed - i);
  }

  // Surrogate derivatives, 0 for spikes outside the mask.
  Lane masked_derivative(const FoundLists& lists, uint32_t i) const {
    const Lane x = hn::LoadU(Floats(), lists.listed_distances + i);
    const Lane derivative = surrogate_derivative(neuron_.surrogate, x);
    if (neuron_.mask == GradientMask::above && spikes_pass_) return derivative;
    return outside_mask(x, lists.listed_ids + i, derivative);
  }
  Lane outside_mask(Lane x, const uint32_t* ids, Lane derivative) const {
    const Floats d;
    const program::FieldView& dynamics = f_[spiking_forward_field::dynamics];
    HWY_ALIGN float threshold[kLanes];
    for (uint32_t j = 0; j < kLanes; ++j)
      threshold[j] =
          dynamics.as<const float>()[2 * dynamics.row_stride + std::min(ids[j], shape_.neurons - 1)];
    const Lane margin = hn::Sub(hn::Load(d, threshold), set(gradient_threshold_));
    const auto passes =
        neuron_.mask == GradientMask::above ? hn::Gt(x, hn::Neg(margin)) : hn::Lt(hn::Abs(x), margin);
    return hn::IfThenElseZero(passes, derivative);
  }

  const std::span<const program::FieldView> f_;
  const SpikingNeuron& neuron_;
  const SpikingShape& shape_;
  SpikingOverflow overflow_;
  float gradient_threshold_ = 0;
  bool spikes_pass_ = false;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
