// Vectors of neurons, and strips: a few of them, which go through the steps of a sample together.
#if defined(TESSERA_SPIKING_STRIP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_STRIP_INL_H_
#undef TESSERA_SPIKING_STRIP_INL_H_
#else
#define TESSERA_SPIKING_STRIP_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/common/some-inl.h"
#include "kernels/host/spiking/layout.h"
#include "kernels/host/spiking/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr uint32_t kVectors = 4;
inline constexpr uint32_t kStrip = static_cast<uint32_t>(kVectors * kLanes);
static_assert(kSpikingPanel % kStrip == 0);

// A vector of a sample's neurons.
struct NeuronVector {
  uint32_t neuron;  // first neuron
  size_t column;    // its column in fields with a row per step
  size_t place;     // its place in states
  uint32_t rest;    // number of neurons from it on
};

// The vector's part of a row with a column per neuron: of parameters, or of their gradients, which may be
// empty.
HWY_INLINE Lane parameters_at(const program::FieldView& field, uint32_t row, const NeuronVector& n) {
  return load_some(field.as<const float>() + row * field.row_stride + n.neuron, n.rest);
}
HWY_INLINE void add_parameters(Lane x, const program::FieldView& field, uint32_t row, const NeuronVector& n) {
  if (field.empty()) return;
  float* to = field.as<float>() + row * field.row_stride + n.neuron;
  store_some(hn::Add(load_some(to, n.rest), x), to, n.rest);
}

// The vector's part of a row with a column per sample and neuron; results may be empty.
HWY_INLINE Lane load_at(const program::FieldView& field, uint32_t row, const NeuronVector& n) {
  return load_some(field.as<const float>() + row * field.row_stride + n.column, n.rest);
}
HWY_INLINE void store_at(Lane x, const program::FieldView& field, uint32_t row, const NeuronVector& n) {
  if (!field.empty()) store_some(x, field.as<float>() + row * field.row_stride + n.column, n.rest);
}

struct Strip {
  uint32_t begin;  // first neuron
  uint32_t count;  // number of neurons
  uint32_t panel;  // its panel of weights, and the first column there
  uint32_t column;

  Strip(uint32_t index, uint32_t neurons, uint32_t width)
      : begin(index * kStrip),
        count(std::min(kStrip, neurons - begin)),
        panel(begin / width),
        column(begin % width) {}

  uint32_t vectors() const { return static_cast<uint32_t>((count + kLanes - 1) / kLanes); }
  // Vector j of a sample whose neurons begin at these places in fields and in states.
  HWY_INLINE NeuronVector vector(uint32_t j, size_t first_column, size_t first_place) const {
    const auto before = static_cast<uint32_t>(j * kLanes);
    const uint32_t neuron = begin + before;
    return {neuron, first_column + neuron, first_place + neuron, count - before};
  }
};

HWY_INLINE uint32_t strips_of(uint32_t neurons) { return (neurons + kStrip - 1) / kStrip; }

// Calls work with the number of vectors as a constant.
template <class Work>
HWY_INLINE void with_vectors(uint32_t vectors, const Work& work) {
  switch (vectors) {
    case 1: return work(std::integral_constant<uint32_t, 1>());
    case 2: return work(std::integral_constant<uint32_t, 2>());
    case 3: return work(std::integral_constant<uint32_t, 3>());
    default: return work(std::integral_constant<uint32_t, 4>());
  }
}

// Masks as bits of an integer, with vector j from bit j · kLanes on.
HWY_INLINE uint64_t bits_of(LaneMask mask, uint32_t j) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(Floats(), mask, bytes);
  uint64_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return (bits & ((uint64_t{1} << kLanes) - 1)) << (j * kLanes);
}
HWY_INLINE LaneMask mask_of(uint64_t bits, uint32_t j) {
  const uint64_t shifted = bits >> (j * kLanes);
  uint8_t bytes[8];
  std::memcpy(bytes, &shifted, sizeof bytes);
  return hn::LoadMaskBits(Floats(), bytes);
}

HWY_INLINE uint64_t load_bits(const uint8_t* from, uint32_t count) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, (count + 7) / 8);
  return bits;
}
HWY_INLINE void store_bits(uint64_t bits, uint8_t* to, uint32_t count) {
  std::memcpy(to, &bits, (count + 7) / 8);
}

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
