// Common parts of both vertices of a spiking layer: shape, inputs and working memory.
#if defined(TESSERA_SPIKING_VERTEX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_VERTEX_INL_H_
#undef TESSERA_SPIKING_VERTEX_INL_H_
#else
#define TESSERA_SPIKING_VERTEX_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/host/spiking/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {

class SpikingVertex {
 protected:
  struct Positions {
    size_t in_ids, in_num, weight, dynamics, scratch;
  };
  SpikingVertex(const program::Vertex& v, const Positions& at)
      : f_(v.fields),
        neuron_(v.params, spiking_param::kinds),
        shape_(spiking_shape(v, f_[at.in_num], f_[at.weight], f_[at.dynamics])),
        delay_(static_cast<uint32_t>(v.params[spiking_param::delay])),
        scratch_(f_[at.scratch].as<float>()),
        width_(f_[at.weight].cols),
        strips_(strips_of(shape_.neurons)),
        in_{f_[at.in_ids], f_[at.in_num], shape_.in_capacity} {}

  template <class T>
  T* at(size_t position) const {
    return reinterpret_cast<T*>(scratch_ + position);
  }

  const std::span<const program::FieldView> f_;
  const SpikingNeuron neuron_;
  const SpikingShape shape_;
  const uint32_t delay_;
  float* const scratch_;
  const uint32_t width_;
  const uint32_t strips_;
  const SpikeLists in_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
