// Spiking layers in float64, with the lists that programs make.
#include <algorithm>
#include <cmath>
#include <functional>

#include "graph/substream.h"
#include "kernels/common/spiking_overflow.h"
#include "operations/spiking_node.h"

namespace tessera::graph {
namespace {

using ops::SpikingProblem;

ops::SpikingValues values_of(const SpikingLayer& layer, const std::vector<const Array*>& inputs,
                             size_t& next) {
  ops::SpikingValues values;
  values.current_decay = values.threshold = {0};
  for (const SpikingParameter& parameter : parameters_of(layer)) {
    std::vector<double>& to = parameter.name == "weight"          ? values.weight
                              : parameter.name == "recurrent"     ? values.recurrent
                              : parameter.name == "decay"         ? values.decay
                              : parameter.name == "current_decay" ? values.current_decay
                                                                  : values.threshold;
    to = *inputs[next++];
  }
  return values;
}

/// The random numbers that decide which spikes lists drop, and the number that they keep.
struct Chance {
  uint64_t seed;
  uint32_t step;
  uint32_t limit;
};

/// A layer's forward pass, in rounds: the spikes that lists drop in a step may change the next step of a
/// recurrent layer.
class LayerReference {
 public:
  LayerReference(const SpikingProblem& problem, const ops::SpikingValues& values, double bar,
                 const ops::Sequence& in)
      : p_(problem), values_(values), settings_{.gradient_threshold = bar}, in_(in) {}

  void run(const Chance& chance) {
    kept_ = ops::Sequence(p_.steps, p_.batch, p_.layer.neurons, 1);
    trace_ = ops::run_layer(p_.layer, values_, settings_, in_, kept_);
    if (!p_.layer.neuron.spikes) return;
    ids_.assign(uint64_t{p_.steps} * p_.batch * p_.room(), kUnspecified);
    num_.assign(uint64_t{p_.steps} * p_.batch * 2, 0);
    dropped_.assign(uint64_t{p_.batch} * 2, 0);
    for (uint32_t t = 0; t < p_.steps; ++t) {
      bool drops = false;
      for (uint32_t b = 0; b < p_.batch; ++b) drops |= list(t, b, chance);
      if (drops && p_.layer.recurrent) trace_ = ops::run_layer(p_.layer, values_, settings_, in_, kept_);
    }
  }

  std::vector<Array> outputs() const {
    std::vector<Array> outputs;
    each_result({p_}, [&](size_t, size_t member, const ops::SpikingMatrix& matrix) {
      outputs.push_back(output(member, matrix));
    });
    return outputs;
  }

  ops::Sequence spikes() const {
    return ListArrays{ids_, num_, p_.steps, p_.batch, p_.room()}.dense(p_.layer.neurons, false);
  }

 private:
  Array output(size_t member, const ops::SpikingMatrix& matrix) const {
    switch (member) {
      case kIds: return ids_;
      case kNum: return num_;
      case kPotentials: return trace_.u.values;
      case kSurrogate: return surrogate();
      case kResets: return resets(matrix);
      case kCurrents: return trace_.current.values;
      default: return dropped_;
    }
  }

  double threshold(uint32_t n) const { return values_.threshold[values_.threshold.size() == 1 ? 0 : n]; }

  bool passes(uint32_t t, uint32_t b, uint32_t n) const {
    const double x = trace_.distance(t, b, n), margin = threshold(n) - settings_.gradient_threshold;
    return p_.layer.neuron.mask == GradientMask::above ? x > -margin : std::abs(x) < margin;
  }

  /// The list of a step of a sample; whether something is dropped.
  bool list(uint32_t t, uint32_t b, const Chance& chance) {
    std::vector<uint32_t> all;
    for (const bool fired : {true, false})
      for (uint32_t n = 0; n < p_.layer.neurons; ++n)
        if ((trace_.spikes(t, b, n) > 0) == fired && (fired || passes(t, b, n))) all.push_back(n);
    auto fired = static_cast<uint32_t>(
        std::ranges::count_if(all, [&](uint32_t n) { return trace_.spikes(t, b, n) > 0; }));
    auto listed = static_cast<uint32_t>(all.size());
    const uint32_t limit = std::min(chance.limit, p_.room());
    const bool drops = listed > limit;
    if (drops) {
      const base::RandomStream stream(chance.seed, chance.step, p_.operation);
      std::vector<uint32_t> kept(limit);
      const uint32_t spikes = kernels::keep_by_chance(
          stream, t, b, fired, listed, limit, [&](uint32_t to, uint32_t from) { kept[to] = all[from]; });
      dropped_[2 * b] += fired - spikes;
      dropped_[2 * b + 1] += listed - fired - (limit - spikes);
      all = kept;
      fired = spikes;
      listed = limit;
    }
    const uint64_t row = uint64_t{t} * p_.batch + b;
    num_[2 * row] = fired;
    num_[2 * row + 1] = listed;
    std::copy(all.begin(), all.end(), ids_.begin() + static_cast<int64_t>(row * p_.room()));
    for (uint32_t n = 0; n < p_.layer.neurons; ++n) kept_(t, b, n) = 0;
    for (const uint32_t n : all) kept_(t, b, n) = 1;
    return drops;
  }

  Array surrogate() const {
    Array of(ids_.size(), kUnspecified);
    ListArrays{ids_, num_, p_.steps, p_.batch, p_.room()}.each([&](uint32_t t, uint32_t b, uint32_t i) {
      const uint64_t at = (uint64_t{t} * p_.batch + b) * p_.room() + i;
      const auto n = static_cast<uint32_t>(ids_[at]);
      of[at] = passes(t, b, n)
                   ? ops::surrogate_derivative(p_.layer.neuron.surrogate, trace_.distance(t, b, n))
                   : 0;
    });
    return of;
  }

  Array resets(const ops::SpikingMatrix& matrix) const {
    Array bytes(uint64_t{matrix.rows} * matrix.cols);
    const uint32_t of_sample = (p_.layer.neurons + 7) / 8;
    for (uint64_t i = 0; i < bytes.size(); ++i) {
      const auto t = static_cast<uint32_t>(i / matrix.cols),
                 b = static_cast<uint32_t>(i % matrix.cols / of_sample);
      uint32_t bits = 0;
      for (uint32_t bit = 0; bit < 8; ++bit)
        if (const auto n = static_cast<uint32_t>(i % of_sample * 8 + bit); n < p_.layer.neurons)
          bits |= (trace_.spikes(t, b, n) > 0 ? 1U : 0U) << bit;
      bytes[i] = bits;
    }
    return bytes;
  }

  const SpikingProblem& p_;
  const ops::SpikingValues& values_;
  ops::SpikingSettings settings_;
  const ops::Sequence& in_;
  ops::Sequence kept_;
  ops::SpikingTrace trace_;
  Array ids_, num_, dropped_;
};

}  // namespace

std::vector<Array> spiking_reference(const Evaluation& e) {
  const std::vector<SpikingProblem> problems = spiking_problems_of(e.node, e.input_type(0));
  const SpikingProblem& first = problems[0];
  const double bar = (*e.inputs[kThreshold])[0];
  const Chance chance{seed_in(e.substream, static_cast<uint64_t>(e.node.integer("seed"))),
                      static_cast<uint32_t>((*e.inputs[kStep])[0]),
                      static_cast<uint32_t>((*e.inputs[kMostListed])[0])};
  ops::Sequence in =
      ListArrays{*e.inputs[0], *e.inputs[1], first.steps, first.batch, first.in_capacity}.dense(
          first.layer.inputs, false);
  size_t next = kForwardParameters;
  std::vector<Array> outputs;
  for (const SpikingProblem& problem : problems) {
    const ops::SpikingValues values = values_of(problem.layer, e.inputs, next);
    LayerReference layer(problem, values, bar, in);
    layer.run(chance);
    for (Array& output : layer.outputs()) outputs.push_back(std::move(output));
    if (problem.layer.neuron.spikes) in = layer.spikes();
  }
  return outputs;
}

namespace {

/// The values that the gradients of a layer read.
struct LayerTrace {
  ops::SpikingValues values;
  ops::Sequence in, mask;
  ops::SpikingTrace trace;
  ops::SpikingUpstream upstream;
};

/// Gradients at positions of lists, scattered to their neurons.
ops::Sequence scattered(const ListArrays& lists, const Array& at_places, uint32_t neurons) {
  ops::Sequence dense(lists.steps, lists.batch, neurons);
  lists.each([&](uint32_t t, uint32_t b, uint32_t i) {
    dense(t, b, lists.id(t, b, i)) = at_places[lists.row(t, b) * lists.capacity + i];
  });
  return dense;
}

void add_to(ops::Sequence& sum, const ops::Sequence& other) {
  if (other.empty()) return;
  if (sum.empty()) {
    sum = other;
    return;
  }
  std::ranges::transform(sum.values, other.values, sum.values.begin(), std::plus());
}

}  // namespace

std::vector<Array> spiking_gradients_reference(const Evaluation& e) {
  const std::vector<SpikingProblem> problems = spiking_problems_of(e.node, e.input_type(0));
  const SpikingProblem& first = problems[0];
  const ops::SpikingSettings settings{.gradient_threshold = (*e.inputs[kThreshold])[0]};
  const ListArrays in{*e.inputs[0], *e.inputs[1], first.steps, first.batch, first.in_capacity};
  const size_t results = kGradientsParameters + all_parameters(problems).size();
  size_t outputs = 0;
  each_result(problems, [&](size_t, size_t, const ops::SpikingMatrix&) { ++outputs; });
  size_t next = kGradientsParameters, next_upstream = results + outputs;
  std::vector<LayerTrace> layers;
  ops::Sequence spikes = in.dense(first.layer.inputs, false);
  for (size_t l = 0; l < problems.size(); ++l) {
    const SpikingProblem& p = problems[l];
    LayerTrace layer{values_of(p.layer, e.inputs, next), spikes, {}, {}, {}};
    const bool has_upstream = e.node.list("upstream").at(l) != 0;
    if (p.layer.neuron.spikes) {
      const ListArrays lists{*e.inputs[results + position_of(problems, l, kIds).value()],
                             *e.inputs[results + position_of(problems, l, kNum).value()], p.steps, p.batch,
                             p.room()};
      layer.mask = lists.dense(p.layer.neurons, true);
      spikes = lists.dense(p.layer.neurons, false);
      if (has_upstream) layer.upstream.spikes = scattered(lists, *e.inputs[next_upstream++], p.layer.neurons);
    } else if (has_upstream) {
      layer.upstream.before = ops::Sequence(p.steps, p.batch, p.layer.neurons);
      layer.upstream.before.values = *e.inputs[next_upstream++];
    }
    layer.trace = ops::run_layer(p.layer, layer.values, settings, layer.in, layer.mask);
    layers.push_back(std::move(layer));
  }
  std::vector<Array> found;
  ops::Sequence later;
  for (size_t l = problems.size(); l-- > 0;) {
    LayerTrace& layer = layers[l];
    add_to(layer.upstream.spikes, later);
    const ops::SpikingGradients of = ops::differentiate_layer(
        problems[l].layer, layer.values, settings, layer.in, layer.trace, layer.upstream, layer.mask);
    std::vector<Array> of_layer;
    for (const SpikingParameter& parameter : ops::learned_parameters(problems[l]))
      of_layer.push_back(parameter.name == "weight"          ? of.values.weight
                         : parameter.name == "recurrent"     ? of.values.recurrent
                         : parameter.name == "decay"         ? of.values.decay
                         : parameter.name == "current_decay" ? of.values.current_decay
                                                             : of.values.threshold);
    found.insert(found.begin(), of_layer.begin(), of_layer.end());
    later = of.in;
  }
  Array din(e.inputs[0]->size(), kUnspecified);
  in.each([&](uint32_t t, uint32_t b, uint32_t i) {
    din[in.row(t, b) * in.capacity + i] = later(t, b, in.id(t, b, i));
  });
  found.push_back(std::move(din));
  return found;
}

}  // namespace tessera::graph
