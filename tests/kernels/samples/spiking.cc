#include "base/random.h"
#include "kernels/host/spiking/codelet.h"
#include "kernels/host/spiking/layout.h"
#include "kernels/samples/list.h"
#include "kernels/samples/spike_lists.h"

namespace tessera::kernels {
namespace {

using enum Type;

struct Setting {
  Neuron neuron = {};
  bool recurrent = false;
  uint32_t delay = 0;
  uint32_t limit = ~0U;
  bool learns = false;  // decays and thresholds
  bool has_din = true;
};

SpikingShape shape_of(const Setting& setting, uint32_t scale) {
  SpikingShape shape;
  shape.steps = 3 * scale;
  shape.batch = 2 * scale;
  shape.inputs = 7 * scale;
  shape.neurons = 13 * scale;
  shape.in_capacity = 4 * scale;
  shape.capacity = setting.limit == ~0U ? shape.neurons : 3 * scale;
  shape.recurrent = setting.recurrent;
  return shape;
}

void add_weight(Sample& s, const SpikingShape& shape, float range, uint64_t seed) {
  const uint32_t width = spiking_panel_width(shape.neurons);
  const base::RandomStream random(seed);
  s.values(f32, spiking_panel_rows(shape), width, [&](uint64_t i) {
    const uint64_t panel = i / width / shape.sources(), neuron = panel * width + i % width;
    return neuron < shape.neurons ? range * (random.symmetric(i) + 0.2F) : 0;
  });
}

void add_dynamics(Sample& s, const SpikingShape& shape, uint64_t seed) {
  const base::RandomStream random(seed);
  s.values(f32, 3, shape.neurons, [&](uint64_t i) { return 0.6F + 0.4F * random.uniform(i); });
}

Sample& add_params(Sample& s, const Setting& setting, const SpikingShape& shape) {
  s.param(shape.in_capacity).param(shape.capacity).param(setting.delay);
  for (const int64_t value : spiking_params(setting.neuron, setting.recurrent).values) s.param(value);
  return s.param(5).param(3).param(shape.in_capacity / 2).param(shape.capacity / 2);
}

uint32_t bytes_of_bits(const SpikingShape& shape) { return shape.batch * ((shape.neurons + 7) / 8); }

template <const Setting& setting>
Sample forward(uint32_t scale, uint64_t seed) {
  const SpikingShape shape = shape_of(setting, scale);
  Sample s(spiking_forward_codelet);
  add_lists(s, shape.steps, shape.batch, shape.inputs, shape.in_capacity, seed);
  add_weight(s, shape, 0.5F, seed + 1);
  add_dynamics(s, shape, seed + 2);
  const uint32_t control[spiking_control::count] = {setting.limit, 7, 9, 11};
  s.values(u32, 1, spiking_control::count, [&](uint64_t i) { return control[i]; });
  s.values(f32, 1, 1, [](uint64_t) { return 0.3F; });
  const uint32_t lists = setting.neuron.spikes ? shape.steps : 0;
  const bool stores = setting.learns || !setting.neuron.spikes;
  s.unset(u16, lists, shape.batch * shape.capacity).unset(u32, lists, shape.batch * 2);
  s.unset(f32, lists, shape.batch * shape.capacity).unset(u8, lists, bytes_of_bits(shape));
  s.unset(f32, stores ? shape.steps : 0, shape.batch * shape.neurons);
  s.unset(f32, setting.learns && setting.neuron.synaptic ? shape.steps : 0, shape.batch * shape.neurons);
  s.unset(u32, setting.neuron.spikes ? shape.batch : 0, 2);
  s.scratch(spiking_forward_scratch(shape));
  // Decays are below 1, so roundings add up to a multiple of the largest potential's.
  return add_params(s, setting, shape).tolerance({.relative = 1e-5, .absolute = 1e-5});
}

template <const Setting& setting>
Sample gradients(uint32_t scale, uint64_t seed) {
  const SpikingShape shape = shape_of(setting, scale);
  Sample s(spiking_gradients_codelet);
  add_lists(s, shape.steps, shape.batch, shape.inputs, shape.in_capacity, seed);
  add_weight(s, shape, 0.1F, seed + 2);
  add_dynamics(s, shape, seed + 3);
  const bool spikes = setting.neuron.spikes;
  if (spikes) {
    add_lists(s, shape.steps, shape.batch, shape.neurons, shape.capacity, seed + 1);
  } else {
    s.unset(u16, 0, 0).unset(u32, 0, 0);
  }
  const base::RandomStream random(seed + 4);
  s.values(f32, spikes ? shape.steps : 0, shape.batch * shape.capacity,
           [&](uint64_t i) { return 0.5F * random.uniform(i); });
  s.values(u8, spikes ? shape.steps : 0, bytes_of_bits(shape),
           [&](uint64_t i) { return random.word(i) & random.word(i + 99) & 0xFF; });
  s.random(f32, shape.steps, shape.batch * shape.neurons, seed + 5);
  s.random(f32, setting.neuron.synaptic ? shape.steps : 0, shape.batch * shape.neurons, seed + 6);
  s.random(f32, shape.steps, shape.batch * (spikes ? shape.capacity : shape.neurons), seed + 7);
  s.unset(f32, setting.has_din ? shape.steps : 0, shape.batch * shape.in_capacity);
  s.unset(f32, spiking_panel_rows(shape), spiking_panel_width(shape.neurons));
  s.unset(f32, setting.learns ? 3 : 0, shape.neurons);
  s.scratch(spiking_gradients_scratch(shape));
  return add_params(s, setting, shape).tolerance({.relative = 1e-4, .absolute = 2e-4 * (1 + scale)});
}

constexpr Setting kLif;
constexpr Setting kFull = {.limit = 10, .has_din = false};
constexpr Setting kReadout = {.neuron = {.spikes = false, .gain = 0.5F}};
constexpr Setting kLearnedReadout = {.neuron = {.spikes = false, .synaptic = true}, .learns = true};
constexpr Setting kGated = {.neuron = {.reset_gradient = ResetGradient::gated,
                                       .surrogate = {SurrogateFamily::arctan, 2},
                                       .gain = 1.5F},
                            .delay = 1};
constexpr Setting kSubtract = {.neuron = {.reset = Reset::subtract,
                                          .reset_gradient = ResetGradient::attached,
                                          .surrogate = {SurrogateFamily::sigmoid, 4}},
                               .learns = true};
constexpr Setting kAttached = {.neuron = {.fires_at_threshold = true,
                                          .reset_gradient = ResetGradient::attached,
                                          .surrogate = {SurrogateFamily::triangle, 1, 0.3F}}};
constexpr Setting kWindow = {.neuron = {.reset = Reset::none,
                                        .surrogate = {SurrogateFamily::boxcar, 2},
                                        .mask = GradientMask::window}};
constexpr Setting kSynaptic = {
    .neuron = {.synaptic = true, .reset = Reset::late_zero, .reset_gradient = ResetGradient::gated},
    .learns = true};
constexpr Setting kAdaptive = {.neuron = {.adaptive = true,
                                          .reset = Reset::late_subtract,
                                          .adaptation_decay = 0.9F,
                                          .adaptation_strength = 0.2F}};
constexpr Setting kRecurrent = {.neuron = {.surrogate = {SurrogateFamily::fast_sigmoid, 25}},
                                .recurrent = true};
constexpr Setting kRecurrentFull = {
    .neuron = {.synaptic = true, .adaptive = true, .adaptation_decay = 0.8F, .adaptation_strength = 0.1F},
    .recurrent = true,
    .delay = 2,
    .limit = 5,
    .learns = true};

#define TESSERA_SPIKING_SETTINGS(X)     \
  X("lif", kLif)                        \
  X("full", kFull)                      \
  X("readout", kReadout)                \
  X("learned-readout", kLearnedReadout) \
  X("gated", kGated)                    \
  X("subtract", kSubtract)              \
  X("attached", kAttached)              \
  X("window", kWindow)                  \
  X("synaptic", kSynaptic)              \
  X("adaptive", kAdaptive)              \
  X("recurrent", kRecurrent)            \
  X("recurrent-full", kRecurrentFull)

#define TESSERA_FORWARD(name, setting) {name, forward<setting>},
#define TESSERA_GRADIENTS(name, setting) {name, gradients<setting>},
constexpr NamedSample spiking_forward_uses[] = {TESSERA_SPIKING_SETTINGS(TESSERA_FORWARD)};
constexpr NamedSample spiking_gradients_uses[] = {TESSERA_SPIKING_SETTINGS(TESSERA_GRADIENTS)};
#undef TESSERA_FORWARD
#undef TESSERA_GRADIENTS

}  // namespace

TESSERA_DEFINE_SAMPLES(spiking, TESSERA_SPIKING_CODELETS)

}  // namespace tessera::kernels
