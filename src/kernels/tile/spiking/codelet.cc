// Spiking vertices on tiles. Sums are in FP32 and in the order of hosts, because a rounding may decide on a
// spike.
#include "kernels/tile/spiking/codelet.h"

#include <vector>

#include "kernels/common/element.h"
#include "kernels/common/spike_lists.h"
#include "kernels/common/spiking_overflow.h"
#include "kernels/common/spiking_step.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Vertex;

uint32_t word(const FieldView& field, int64_t row, int64_t col) {
  return load<uint32_t>(address_of(field, row, col));
}

/// Adds rows of weights, of f32 or f16.
void add_rows(const FieldView& weight, const SpikeLists& lists, uint32_t b, std::vector<float>& sums) {
  for (uint32_t i = 0, count = lists.spikes(0, b); i < count; ++i) {
    const uint32_t row = lists.id(0, b, i);
    for (uint32_t n = 0; n < sums.size(); ++n)
      sums[n] += weight.type == Type::f32 ? at(weight, row, n) : f32_at(weight, row, n);
  }
}

}  // namespace

void spiking_tile_forward_reference(const Vertex& v) {
  using namespace spiking_tile_forward_field;
  const auto& f = v.fields;
  if (f[time].empty() || word(f[time], 0, 0) == 0) return;
  const SpikingNeuron neuron(v.params, spiking_tile_param::kinds);
  const uint32_t neurons = f[dynamics].cols, samples = f[in_num].cols / 2;
  const SpikeLists in(f[in_ids], f[in_num], v.params[spiking_tile_param::in_capacity]);
  const SpikeLists own(f[own_ids], f[own_num], v.params[spiking_tile_param::capacity]);
  std::vector<float> sums(neurons);
  for (uint32_t b = 0; b < samples; ++b) {
    sums.assign(neurons, 0);
    add_rows(f[weight], in, b, sums);
    if (neuron.recurrent) add_rows(f[recurrent], own, b, sums);
    for (uint32_t n = 0; n < neurons; ++n) {
      const uint32_t column = b * neurons + n, adaptations = neuron.synaptic ? 2 : 1;
      SpikingState s{at(f[state], 0, column), neuron.synaptic ? at(f[state], 1, column) : 0,
                     neuron.adaptive ? at(f[state], adaptations, column) : 0};
      const SpikingDynamics d = SpikingDynamics::of(f[dynamics], n);
      const float bar = at(f[dynamics], 3, n);
      const bool before = !f[flags].empty() && load<uint8_t>(address_of(f[flags], b, n)) == 2;
      const SpikingAdvance step = advance(neuron, d, bar, sums[n], before, s);
      set(f[state], 0, column, s.v);
      if (neuron.synaptic) set(f[state], 1, column, s.current);
      if (neuron.adaptive) set(f[state], adaptations, column, s.adaptation);
      set(f[potentials], 0, column, step.u);
      set(f[currents], 0, column, s.current);
      if (!neuron.spikes) continue;
      store<uint8_t>(address_of(f[flags], b, n), step.fires ? 2 : step.passes ? 1 : 0);
      if (!f[resets].empty()) store<uint8_t>(address_of(f[resets], 0, column), step.fires ? 1 : 0);
      set(f[surrogate], 0, column,
          step.fires || step.passes ? masked_derivative(neuron, d.threshold, bar, step.distance) : 0);
    }
  }
}

void spiking_tile_lists_reference(const Vertex& v) {
  using namespace spiking_tile_lists_field;
  const auto& f = v.fields;
  const auto capacity = static_cast<uint32_t>(v.params[spiking_tile_lists_param::capacity]);
  const uint32_t step = f[time].empty() ? 0 : word(f[time], 0, 0);
  for (uint32_t b = 0; b < f[flags].rows; ++b) {
    uint32_t fired = 0, listed = 0;
    if (step > 0) {
      std::vector<uint16_t> all;
      for (const uint8_t flag : {2, 1}) {
        for (uint32_t n = 0; n < f[flags].cols; ++n)
          if (load<uint8_t>(address_of(f[flags], b, n)) == flag) all.push_back(static_cast<uint16_t>(n));
        if (flag == 2) fired = static_cast<uint32_t>(all.size());
      }
      listed = static_cast<uint32_t>(all.size());
      SpikingOverflow(f[control], f[dropped], capacity, v.params[spiking_tile_lists_param::operation],
                      v.params[spiking_tile_lists_param::first_sample])
          .drop(step - 1, b, fired, listed, [&](uint32_t to, uint32_t from) { all[to] = all[from]; });
      for (uint32_t i = 0; i < listed; ++i) store(address_of(f[ids], 0, int64_t{b} * capacity + i), all[i]);
    }
    for (uint32_t i = listed; i < capacity; ++i)
      store<uint16_t>(address_of(f[ids], 0, int64_t{b} * capacity + i), 0);
    store(address_of(f[num], 0, 2 * b), fired);
    store(address_of(f[num], 0, 2 * b + 1), listed);
  }
}

void spiking_tile_backward_reference(const Vertex& v) {
  using namespace spiking_tile_backward_field;
  const auto& f = v.fields;
  const uint32_t step = f[time].empty() ? 0 : word(f[time], 0, 0);
  const SpikingNeuron neuron(v.params, spiking_tile_param::kinds);
  const uint32_t neurons = f[dynamics].cols, samples = neurons == 0 ? 0 : f[dx].cols / neurons;
  const auto first = static_cast<uint32_t>(v.params[spiking_tile_param::first]);
  const SpikeLists own(f[own_ids], f[own_num], v.params[spiking_tile_param::capacity]);
  std::vector<float> ds(neurons);
  std::vector<char> is_listed(neurons);
  for (uint32_t b = 0; b < samples; ++b) {
    ds.assign(neurons, 0);
    is_listed.assign(neurons, 0);
    for (uint32_t i = 0; step > 0 && neuron.spikes && i < own.listed(0, b); ++i) {
      const uint32_t n = own.id(0, b, i) - first;
      if (n >= neurons) continue;
      is_listed[n] = 1;
      if (!f[upstream].empty()) ds[n] = at(f[upstream], 0, own.place(b, i));
    }
    for (uint32_t n = 0; n < neurons; ++n) {
      const uint32_t column = b * neurons + n;
      if (step == 0) {
        set(f[dx], 0, column, 0);
        continue;
      }
      if (!neuron.spikes && !f[upstream].empty()) ds[n] = at(f[upstream], 0, column);
      SpikingSeen seen{.derivative = is_listed[n] ? or_zero(f[surrogate], 0, column) : 0,
                       .u = or_zero(f[potentials], 1, column)};
      if (!f[resets].empty()) seen.fired = load<uint8_t>(address_of(f[resets], 1, column)) != 0;
      if (step > 1) {
        if (!f[resets].empty()) seen.fired_before = load<uint8_t>(address_of(f[resets], 0, column)) != 0;
        seen.u_before = or_zero(f[potentials], 0, column);
        seen.current_before = or_zero(f[currents], 0, column);
      }
      SpikingCarried carried{at(f[state], 0, column), at(f[state], 1, column), at(f[state], 2, column)};
      const SpikingStepGradients g =
          differentiate(neuron, SpikingDynamics::of(f[dynamics], n), ds[n], seen, carried);
      set(f[state], 0, column, carried.u);
      set(f[state], 1, column, carried.current);
      set(f[state], 2, column, carried.adaptation);
      set(f[dx], 0, column, g.x);
      if (step > 1) add(f[ddynamics], 0, n, g.dynamics.decay);
      if (step > 1) add(f[ddynamics], 1, n, g.dynamics.current_decay);
      add(f[ddynamics], 2, n, g.dynamics.threshold);
    }
  }
}

void spiking_tile_rows_reference(const Vertex& v) {
  using namespace spiking_tile_rows_field;
  const auto& f = v.fields;
  const bool is_none = f[time].empty() || word(f[time], 0, 0) == 0;
  const uint32_t neurons = f[dweight].cols, samples = f[num].cols / 2;
  const auto room = static_cast<uint32_t>(v.params[spiking_tile_rows_param::capacity]);
  const SpikeLists lists(f[ids], f[num], room);
  for (uint32_t b = 0; b < samples; ++b) {
    const uint32_t fired = is_none ? 0 : lists.spikes(0, b), listed = is_none ? 0 : lists.listed(0, b);
    for (uint32_t i = 0; i < fired; ++i)
      for (uint32_t n = 0; n < neurons; ++n) {
        const uint32_t row = lists.id(0, b, i);
        add(f[dweight], row, n, at(f[dx], 0, b * neurons + n));
      }
    if (f[din].empty()) continue;
    for (uint32_t i = 0; i < room; ++i) {
      float sum = 0;
      for (uint32_t n = 0; i < listed && n < neurons; ++n)
        sum += f32_at(f[weight], lists.id(0, b, i), n) * at(f[dx], 0, b * neurons + n);
      set_number(f[din], 0, lists.place(b, i), sum);
    }
  }
}

TESSERA_DEFINE_FAMILY(tile_spiking, TESSERA_TILE_SPIKING_CODELETS, TESSERA_TILE_CODELET)

}  // namespace tessera::kernels
