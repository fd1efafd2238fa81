#include "kernels/host/spiking/neurons.h"

#include "base/random.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

using enum Type;

struct Setting {
  Neuron neuron = {};
  uint32_t recurrent_rows = 0;  // 2: all to all
  bool after_reset = false;
  bool has_initial = false;
  bool learns = false;
};

NeuronsShape shape_of(const Setting& setting, uint32_t scale) {
  return {.steps = 4 * scale,
          .samples = 3 * scale,
          .neurons = 11 * scale,
          .one_to_one = setting.recurrent_rows == 1,
          .all_to_all = setting.recurrent_rows > 1};
}

uint32_t columns(const NeuronsShape& shape) { return shape.samples * shape.neurons; }

void add_recurrent(Sample& s, const Setting& setting, const NeuronsShape& shape, uint64_t seed) {
  const uint32_t rows = setting.recurrent_rows > 1 ? shape.neurons : setting.recurrent_rows;
  s.random(f32, rows, shape.neurons, seed, 0.2F);
}

void add_dynamics(Sample& s, const NeuronsShape& shape, uint64_t seed) {
  const base::RandomStream random(seed);
  s.values(f32, 3, shape.neurons, [&](uint64_t i) { return 0.6F + 0.4F * random.uniform(i); });
}

void add_params(Sample& s, const Setting& setting) {
  for (const int64_t value : spiking_params(setting.neuron, setting.recurrent_rows > 0).values)
    s.param(value);
  s.param(setting.after_reset ? 1 : 0);
}

template <const Setting& setting>
Sample forward(uint32_t scale, uint64_t seed) {
  const NeuronsShape shape = shape_of(setting, scale);
  const uint32_t wide = columns(shape), spiking = setting.neuron.spikes ? shape.steps : 0;
  Sample s(neurons_forward_codelet);
  s.random(f32, shape.steps, wide, seed, 1.2F);
  add_recurrent(s, setting, shape, seed + 1);
  add_dynamics(s, shape, seed + 2);
  s.random(f32, setting.has_initial ? 2 : 0, wide, seed + 3, 1.5F);
  s.unset(f32, spiking, wide).unset(f32, setting.neuron.synaptic ? shape.steps : 0, wide);
  s.unset(f32, shape.steps, wide).unset(f32, setting.after_reset ? shape.steps : 0, wide);
  s.scratch(NeuronsScratch(shape, false).floats);
  add_params(s, setting);
  return s.tolerance({.relative = 1e-5, .absolute = 1e-5});
}

template <const Setting& setting>
Sample gradients(uint32_t scale, uint64_t seed) {
  const NeuronsShape shape = shape_of(setting, scale);
  const uint32_t wide = columns(shape), spiking = setting.neuron.spikes ? shape.steps : 0;
  Sample s(neurons_gradients_codelet);
  s.random(f32, setting.neuron.spikes || setting.learns ? shape.steps : 0, wide, seed, 1.3F);
  s.random(f32, setting.neuron.synaptic ? shape.steps : 0, wide, seed + 1);
  add_recurrent(s, setting, shape, seed + 2);
  add_dynamics(s, shape, seed + 3);
  s.random(f32, setting.has_initial ? 2 : 0, wide, seed + 4, 1.5F);
  s.random(f32, spiking, wide, seed + 5);
  s.random(f32, setting.neuron.synaptic ? shape.steps : 0, wide, seed + 6);
  s.random(f32, setting.after_reset ? 0 : shape.steps, wide, seed + 7);
  s.random(f32, setting.after_reset ? shape.steps : 0, wide, seed + 8);
  s.unset(f32, shape.steps, wide);
  const uint32_t rows = setting.recurrent_rows > 1 ? shape.neurons : setting.recurrent_rows;
  s.unset(f32, rows, shape.neurons).unset(f32, setting.learns ? 3 : 0, shape.neurons);
  s.unset(f32, setting.has_initial ? 2 : 0, wide);
  s.scratch(NeuronsScratch(shape, true).floats);
  add_params(s, setting);
  return s.tolerance({.relative = 1e-4, .absolute = 2e-4 * (1 + scale)});
}

constexpr Surrogate kArctan = {SurrogateFamily::arctan, 2};
constexpr Setting kLif = {
    .neuron = {.reset = Reset::late_subtract, .reset_gradient = ResetGradient::gated, .surrogate = kArctan}};
constexpr Setting kZero = {
    .neuron = {.reset = Reset::zero, .reset_gradient = ResetGradient::gated, .gain = 0.8F},
    .has_initial = true,
    .learns = true};
constexpr Setting kAttached = {.neuron = {.fires_at_threshold = true,
                                          .reset = Reset::zero,
                                          .reset_gradient = ResetGradient::attached,
                                          .surrogate = {SurrogateFamily::triangle, 1, 0.3F}},
                               .after_reset = true};
constexpr Setting kSubtract = {.neuron = {.synaptic = true,
                                          .reset = Reset::subtract,
                                          .reset_gradient = ResetGradient::attached,
                                          .surrogate = {SurrogateFamily::sigmoid, 4}},
                               .after_reset = true,
                               .has_initial = true,
                               .learns = true};
constexpr Setting kSynaptic = {
    .neuron = {.synaptic = true, .reset = Reset::late_zero, .reset_gradient = ResetGradient::gated},
    .has_initial = true,
    .learns = true};
constexpr Setting kReadout = {.neuron = {.spikes = false, .gain = 0.5F}};
constexpr Setting kLearnedReadout = {
    .neuron = {.spikes = false, .synaptic = true}, .has_initial = true, .learns = true};
constexpr Setting kOneToOne = {.neuron = {.reset = Reset::none, .surrogate = {SurrogateFamily::boxcar, 2}},
                               .recurrent_rows = 1};
constexpr Setting kAllToAll = {.neuron = {.synaptic = true,
                                          .reset = Reset::late_subtract,
                                          .reset_gradient = ResetGradient::gated,
                                          .surrogate = {SurrogateFamily::fast_sigmoid, 25}},
                               .recurrent_rows = 2,
                               .learns = true};

#define TESSERA_NEURONS_SETTINGS(X)     \
  X("lif", kLif)                        \
  X("zero", kZero)                      \
  X("attached", kAttached)              \
  X("subtract", kSubtract)              \
  X("synaptic", kSynaptic)              \
  X("readout", kReadout)                \
  X("learned-readout", kLearnedReadout) \
  X("one-to-one", kOneToOne)            \
  X("all-to-all", kAllToAll)

#define TESSERA_FORWARD(name, setting) {name, forward<setting>},
#define TESSERA_GRADIENTS(name, setting) {name, gradients<setting>},
constexpr NamedSample neurons_forward_uses[] = {TESSERA_NEURONS_SETTINGS(TESSERA_FORWARD)};
constexpr NamedSample neurons_gradients_uses[] = {TESSERA_NEURONS_SETTINGS(TESSERA_GRADIENTS)};
#undef TESSERA_FORWARD
#undef TESSERA_GRADIENTS

}  // namespace

TESSERA_DEFINE_SAMPLES(neurons, TESSERA_NEURONS_CODELETS)

}  // namespace tessera::kernels
