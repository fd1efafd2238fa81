// Common parts of both passes of neurons that take currents.
#if defined(TESSERA_SPIKING_NEURONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_NEURONS_INL_H_
#undef TESSERA_SPIKING_NEURONS_INL_H_
#else
#define TESSERA_SPIKING_NEURONS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/spiking/neurons.h"
#include "kernels/host/spiking/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {
namespace hn = hwy::HWY_NAMESPACE;

using program::FieldView;

class NeuronsPass {
 public:
  NeuronsPass(const program::Vertex& v, const FieldView& rows, const FieldView& dynamics,
              const FieldView& recurrent, const FieldView& scratch, bool gradients)
      : neuron_(v.params),
        shape_(neurons_shape(rows, dynamics, recurrent)),
        layout_(shape_, gradients),
        scratch_(scratch.as<float>()),
        dynamics_(dynamics) {}

 protected:
  // Calls work(first neuron, neurons, first sample, samples) for each block.
  template <class Work>
  HWY_INLINE void each_block(const Work& work) const {
    for (uint32_t n = 0; n < shape_.neurons; n += layout_.chunk)
      for (uint32_t b = 0; b < shape_.samples; b += layout_.samples)
        work(n, std::min(layout_.chunk, shape_.neurons - n), b,
             std::min(layout_.samples, shape_.samples - b));
  }

  // Calls work for each vector of a sample, `s` in its block.
  template <class Work>
  HWY_INLINE void each_vector(uint32_t first, uint32_t count, uint32_t b, uint32_t s,
                              const Work& work) const {
    for (uint32_t i = 0; i < count; i += kLanes)
      work(NeuronVector{first + i, size_t{b} * shape_.neurons + first + i, size_t{s} * layout_.columns + i,
                        count - i});
  }

  template <class T = float>
  T* at(size_t position) const {
    return reinterpret_cast<T*>(scratch_ + position);
  }

  // Decays, decays of currents, thresholds.
  template <uint32_t row>
  HWY_INLINE Lane dynamic(const NeuronVector& n) const {
    return parameters_at(dynamics_, row, n);
  }

  HWY_INLINE LaneMask fires(Lane u, Lane threshold) const {
    return reaches(u, threshold, neuron_.fires_at_threshold);
  }

  // Appends the neurons that fired to `ids`.
  HWY_INLINE uint32_t append(LaneMask fired, const NeuronVector& n, uint32_t* ids) const {
    const Floats d;
    const hn::RebindToSigned<Floats> di;
    const auto valid = hn::And(fired, hn::FirstN(d, n.rest));
    const auto found = hn::Compress(hn::Iota(di, static_cast<int32_t>(n.neuron)), hn::RebindMask(di, valid));
    hn::StoreU(found, di, reinterpret_cast<int32_t*>(ids));
    return static_cast<uint32_t>(hn::CountTrue(d, valid));
  }

  const NeuronsNeuron neuron_;
  const NeuronsShape shape_;
  const NeuronsScratch layout_;
  float* const scratch_;
  const FieldView& dynamics_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
