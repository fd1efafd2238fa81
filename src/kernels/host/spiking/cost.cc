// What vertices of spiking layers cost on a host.
#include "kernels/common/cost.h"

#include "kernels/host/spiking/layout.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using machine::Machine;

// Cycles per vector of neurons and step: to update potentials and find those above ϑ_grad; more for other
// states than a potential; and to pass its gradient back.
constexpr double kUpdate = 6;
constexpr double kUpdateMore = 8;
constexpr double kBackward = 2.5;
constexpr double kBackwardMore = 14;
// Per listed neuron and strip of neurons that it goes to, besides reading its weights; per entry of a list;
// per list; per vertex.
constexpr double kEvent = 1;
constexpr double kEntry = 5;
constexpr double kSortedEntry = 7;
constexpr double kList = 40;
constexpr double kVertex = 500;

/// What both passes of a layer depend on.
struct Work {
  Work(const program::Vertex& v, size_t in_num, size_t weight, size_t dynamics, const HostFigures& figures)
      : neuron(v.params, spiking_param::kinds),
        shape(spiking_shape(v, v.fields[in_num], v.fields[weight], v.fields[dynamics])),
        f(figures),
        lanes(lanes_of(figures)),
        lists(double{1} * shape.steps * shape.batch),
        vectors((shape.neurons + lanes - 1) / lanes),
        events(lists * static_cast<double>(v.params[spiking_param::expected_in])),
        listed(lists * static_cast<double>(v.params[spiking_param::expected])) {
    if (shape.recurrent) events += listed;
  }

  bool is_plain() const { return !neuron.synaptic && !neuron.adaptive && !neuron.is_late(); }
  /// Cycles to read a row of weights of each of `rows` sources from the L2 cache.
  double row_cycles(double rows) const {
    const double panel = double{1} * shape.sources() * kSpikingPanel * sizeof(float);
    const double bytes = vectors * lanes * sizeof(float);
    return rows * (bytes / streaming_rate(panel, f) + kEvent * vectors * lanes / kSpikingPanel);
  }

  SpikingNeuron neuron;
  SpikingShape shape;
  const HostFigures& f;
  double lanes, lists, vectors, events, listed;
};

program::PhaseTimes computing(double cycles) { return in_phase(program::Phase::compute, kVertex + cycles); }

}  // namespace

program::PhaseTimes spiking_forward_cost(const program::Vertex& v, const Machine& m) {
  using namespace spiking_forward_field;
  const Work w(v, in_num, weight, dynamics, m.figures);
  const double update = w.lists * w.vectors * (kUpdate + (w.is_plain() ? 0 : kUpdateMore));
  const double lists = w.neuron.spikes ? w.lists * kList + w.listed * kEntry : 0;
  return computing(w.row_cycles(w.events) + update + lists);
}

program::PhaseTimes spiking_gradients_cost(const program::Vertex& v, const Machine& m) {
  using namespace spiking_gradients_field;
  const Work w(v, in_num, weight, dynamics, m.figures);
  const bool is_plain = w.is_plain() && !w.neuron.attaches() && v.fields[ddynamics].empty();
  const double steps = w.lists * w.vectors * (kBackward + (is_plain ? 0 : kBackwardMore));
  double entries = w.events * kSortedEntry + w.listed * kSortedEntry;
  double rows = w.events;
  if (!v.fields[din].empty()) {
    rows += w.events;
    entries += w.events * kSortedEntry;
  }
  if (w.shape.recurrent) rows += w.listed;
  return computing(w.row_cycles(rows) + steps + entries + w.lists * kList);
}

}  // namespace tessera::kernels
