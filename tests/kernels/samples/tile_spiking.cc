#include "base/random.h"
#include "kernels/host/spiking/codelet.h"
#include "kernels/samples/list.h"
#include "kernels/samples/spike_lists.h"
#include "kernels/tile/spiking/codelet.h"

namespace tessera::kernels {
namespace {

using enum Type;

struct Setting {
  Neuron neuron = {};
  bool recurrent = false;
  bool learns = false;
  Type weight = f32;
  uint32_t time = 5;
};

struct Shape {
  explicit Shape(uint32_t scale)
      : samples(2 * scale),
        inputs(7 * scale),
        all(9 * scale),
        neurons(3 * scale),
        in_capacity(4 * scale),
        capacity(5 * scale) {}
  uint32_t samples, inputs, all, neurons, in_capacity, capacity;
};

void add_dynamics(Sample& s, uint32_t rows, uint32_t neurons, uint64_t seed) {
  const base::RandomStream random(seed);
  s.values(f32, rows, neurons, [&](uint64_t i) { return 0.5F + 0.4F * random.uniform(i); });
}

void add_time(Sample& s, uint32_t time) {
  s.values(u32, 1, 1, [time](uint64_t) { return time; });
}

Sample& add_params(Sample& s, const Setting& setting, const Shape& shape) {
  s.param(shape.in_capacity).param(shape.capacity).param(2);
  for (const int64_t value : spiking_params(setting.neuron, setting.recurrent).values) s.param(value);
  return s.param(shape.in_capacity / 2).param(shape.capacity / 2);
}

template <const Setting& setting>
Sample forward(uint32_t scale, uint64_t seed) {
  const Shape shape(scale);
  const uint32_t row = shape.samples * shape.neurons;
  const Neuron& neuron = setting.neuron;
  Sample s(spiking_tile_forward_codelet);
  add_lists(s, 1, shape.samples, shape.inputs, shape.in_capacity, seed);
  add_lists(s, 1, setting.recurrent ? shape.samples : 0, shape.all, shape.capacity, seed + 1);
  s.random(setting.weight, shape.inputs, shape.neurons, seed + 2);
  s.random(setting.weight, setting.recurrent ? shape.all : 0, shape.neurons, seed + 3);
  add_dynamics(s, 4, shape.neurons, seed + 4);
  add_time(s, setting.time);
  s.random(f32, 1U + (neuron.synaptic ? 1 : 0) + (neuron.adaptive ? 1 : 0), row, seed + 5);
  const base::RandomStream random(seed + 6);
  s.values(u8, neuron.spikes ? shape.samples : 0, shape.neurons,
           [&](uint64_t i) { return random.word(i) % 3; });
  s.unset(f32, neuron.spikes ? 1 : 0, row).unset(u8, neuron.spikes && setting.learns ? 1 : 0, row);
  s.unset(f32, setting.learns || !neuron.spikes ? 1 : 0, row);
  s.unset(f32, setting.learns && neuron.synaptic ? 1 : 0, row);
  return add_params(s, setting, shape);
}

template <uint32_t limit>
Sample lists(uint32_t scale, uint64_t seed) {
  const Shape shape(scale);
  Sample s(spiking_tile_lists_codelet);
  const base::RandomStream random(seed);
  s.values(u8, shape.samples, shape.all, [&](uint64_t i) { return random.word(i) % 3; });
  const uint32_t control[spiking_control::count] = {limit, 7, 9, 11};
  s.values(u32, 1, spiking_control::count, [&](uint64_t i) { return control[i]; });
  add_time(s, 3);
  s.unset(u16, 1, shape.samples * shape.capacity).unset(u32, 1, shape.samples * 2);
  s.values(u32, shape.samples, 2, [](uint64_t i) { return i; });
  return s.param(shape.capacity).param(5).param(3).param(shape.capacity / 2);
}

template <const Setting& setting>
Sample backward(uint32_t scale, uint64_t seed) {
  const Shape shape(scale);
  const uint32_t row = shape.samples * shape.neurons;
  const Neuron& neuron = setting.neuron;
  Sample s(spiking_tile_backward_codelet);
  add_lists(s, 1, neuron.spikes ? shape.samples : 0, shape.all, shape.capacity, seed);
  s.random(f32, 1, neuron.spikes ? shape.samples * shape.capacity : row, seed + 1);
  add_dynamics(s, 4, shape.neurons, seed + 2);
  add_time(s, setting.time);
  s.random(f32, neuron.spikes ? 1 : 0, row, seed + 3);
  const base::RandomStream random(seed + 4);
  s.values(u8, neuron.spikes && setting.learns ? 2 : 0, row, [&](uint64_t i) { return random.word(i) & 1; });
  s.random(f32, setting.learns ? 2 : 0, row, seed + 5);
  s.random(f32, setting.learns && neuron.synaptic ? 1 : 0, row, seed + 6);
  s.random(f32, 3, row, seed + 7).random(f32, setting.learns ? 3 : 0, shape.neurons, seed + 8);
  s.unset(f32, 1, row);
  return add_params(s, setting, shape);
}

template <const Setting& setting>
Sample rows(uint32_t scale, uint64_t seed) {
  const Shape shape(scale);
  const bool has_din = !setting.learns;
  Sample s(spiking_tile_rows_codelet);
  add_lists(s, 1, shape.samples, shape.inputs, shape.in_capacity, seed);
  s.random(setting.weight, has_din ? shape.inputs : 0, shape.neurons, seed + 1);
  s.random(f32, 1, shape.samples * shape.neurons, seed + 2);
  add_time(s, setting.time);
  s.random(f32, shape.inputs, shape.neurons, seed + 3);
  s.unset(setting.weight, has_din ? 1 : 0, shape.samples * shape.in_capacity);
  return s.param(shape.in_capacity).param(shape.in_capacity / 2);
}

constexpr Setting kLif;
constexpr Setting kHalf = {.weight = f16};
constexpr Setting kIdle = {.time = 0};
constexpr Setting kReadout = {.neuron = {.spikes = false, .synaptic = true}, .learns = true};
constexpr Setting kRecurrent = {.neuron = {.synaptic = true,
                                           .adaptive = true,
                                           .reset = Reset::subtract,
                                           .reset_gradient = ResetGradient::attached,
                                           .surrogate = {SurrogateFamily::arctan, 2},
                                           .adaptation_decay = 0.9F,
                                           .adaptation_strength = 0.2F},
                                .recurrent = true,
                                .learns = true};

constexpr NamedSample spiking_tile_forward_uses[] = {{"lif", forward<kLif>},
                                                     {"half", forward<kHalf>},
                                                     {"readout", forward<kReadout>},
                                                     {"recurrent", forward<kRecurrent>}};
constexpr NamedSample spiking_tile_lists_uses[] = {{"all", lists<~0U>}, {"few", lists<3>}};
constexpr NamedSample spiking_tile_backward_uses[] = {{"lif", backward<kLif>},
                                                      {"idle", backward<kIdle>},
                                                      {"readout", backward<kReadout>},
                                                      {"recurrent", backward<kRecurrent>}};
constexpr NamedSample spiking_tile_rows_uses[] = {
    {"f32", rows<kLif>}, {"f16", rows<kHalf>}, {"idle", rows<kIdle>}, {"weights-only", rows<kReadout>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(tile_spiking, TESSERA_TILE_SPIKING_CODELETS)

}  // namespace tessera::kernels
