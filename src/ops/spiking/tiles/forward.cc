#include <algorithm>
#include <memory>

#include "kernels/host/spiking/codelet.h"
#include "kernels/tile/spiking/codelet.h"
#include "ops/spiking/tiles/parts.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::MappedBox;
using program::Purpose;
using program::StepId;
using program::VariableId;

/// One source to `count` columns of a row.
program::CopyGroup spread(const Operand& from, const Operand& to, uint32_t count) {
  return copy_to_all(from, to, count, {.col = from.cols()});
}

class ForwardBuild {
 public:
  ForwardBuild(const Builder& builder, const std::vector<SpikingProblem>& problems,
               const SpikingTilePartition& partition, const SpikingStackOperands& operands)
      : b_(builder),
        problems_(problems),
        o_(operands),
        f_{.partition = partition},
        parts_(builder, problems, f_.partition) {}

  SpikingTileForward build() {
    pass_ = b_.temporary("pass", Type::u32, 1, 1, program::map_to_tile(1, 1, 0)).variable;
    add_times();
    add_inputs();
    auto parameter = o_.parameters.begin();
    for (size_t l = 0; l < problems_.size(); ++l) add_layer(l, parameter);
    steps_.push_back(parts_.clear(cleared_));
    steps_.push_back(b_.copy(std::move(prepare_)));
    std::vector<StepId> body = {b_.execute(std::move(neurons_))};
    if (!lists_.groups.empty()) body.push_back(b_.execute(std::move(lists_)));
    steps_.push_back(b_.repeat(f_.partition.passes, b_.sequence(std::move(body)), pass_));
    if (const size_t last = problems_.size() - 1;
        o_.layers[last].potentials && f_.layers[last].potentials && !problems_[last].layer.neuron.spikes)
      return_potentials(last, *o_.layers[last].potentials);
    f_.step = b_.sequence(std::move(steps_));
    return std::move(f_);
  }

 private:
  const SpikingTileLayer& layer(size_t l) const { return f_.partition.layers[l]; }
  uint32_t rows() const { return f_.partition.passes + 1; }

  /// The number of the step of each pass, for the tiles of each layer and those that make its lists.
  void add_times() {
    const uint32_t passes = f_.partition.passes, columns = f_.partition.times;
    const auto times = std::make_shared<std::vector<uint32_t>>(uint64_t{passes} * columns);
    std::vector<MappedBox> mapping;
    for (const SpikingTileLayer& of : f_.partition.layers)
      for (uint32_t i = 0; i < of.tiles + of.list_tiles(); ++i) {
        const uint32_t column = of.first_time + i;
        mapping.push_back(
            {{0, passes, column, 1}, i < of.tiles ? of.first_tile + i : of.first_list_tile + i - of.tiles});
        for (uint32_t t = 0; t < parts_.steps(); ++t)
          (*times)[uint64_t{t + of.offset} * columns + column] = t + 1;
      }
    f_.times = b_.constant("times", Type::u32, passes, columns,
                           {times, reinterpret_cast<const std::byte*>(times->data())}, mapping);
  }

  /// Lists of the inputs, in the passes in which the first layer takes them.
  void add_inputs() {
    const auto is_whole = [&](const Operand& operand) {
      return std::ranges::all_of(b_.mapping_of(operand),
                                 [&](const MappedBox& m) { return m.box.rows == operand.rows(); });
    };
    const uint32_t passes = f_.partition.passes, first = f_.partition.input_row;
    if (first == 0 && passes == parts_.steps() && is_whole(o_.in_ids) && is_whole(o_.in_num)) {
      f_.in_ids = o_.in_ids;
      f_.in_num = o_.in_num;
      return;
    }
    const uint32_t capacity = problems_[0].in_capacity;
    f_.in_ids = parts_.of_samples("in.ids", 0, Type::u16, passes, capacity, Purpose::metadata);
    f_.in_num = parts_.of_samples("in.num", 0, Type::u32, passes, 2, Purpose::metadata);
    const uint32_t count = first < passes ? std::min(parts_.steps(), passes - first) : 0;
    const auto copy_rows = [&](const Operand& from, const Operand& to, uint32_t row, uint32_t rows) {
      if (rows > 0)
        prepare_.groups.push_back(
            copy_of(from.part({0, rows, 0, from.cols()}), to.part({row, rows, 0, to.cols()})));
    };
    copy_rows(o_.in_ids, f_.in_ids, first, count);
    copy_rows(o_.in_num, f_.in_num, first, count);
    if (count == passes) return;
    // Copied, because a dry run knows what is copied.
    const uint32_t before = std::min(first, passes), after = passes - before - count;
    const auto zeros = std::make_shared<std::vector<uint32_t>>(uint64_t{passes - count} * f_.in_num.cols());
    const Operand none = b_.constant("in.none", Type::u32, std::max(before, after), f_.in_num.cols(),
                                     {zeros, reinterpret_cast<const std::byte*>(zeros->data())},
                                     map_lists(layer(0), std::max(before, after), 2));
    copy_rows(none, f_.in_num, 0, before);
    copy_rows(none, f_.in_num, before + count, after);
  }

  void add_layer(size_t l, std::vector<Operand>::const_iterator& parameter) {
    const SpikingProblem& problem = problems_[l];
    const Neuron& neuron = problem.layer.neuron;
    f_.weights.push_back(resident(*parameter++, l));
    f_.recurrent.emplace_back();
    if (problem.layer.recurrent) f_.recurrent.back() = resident(*parameter++, l);
    SpikingTileResults& r = f_.layers.emplace_back();
    add_dynamics(l, r, parameter);

    const uint32_t batch = parts_.batch();
    const SpikingResults stashed = results_of(problem);
    const auto stash = [&](const char* name, const SpikingMatrix& matrix, Type type) {
      return matrix.empty() ? std::optional<Operand>()
                            : parts_.of_neurons(name, l, type, rows(), batch, Purpose::stash);
    };
    r.surrogate = stash("surrogate", stashed.surrogate, Type::f32);
    r.resets = stash("resets", stashed.resets, Type::u8);
    r.potentials = stash("potentials", stashed.potentials, Type::f32);
    r.currents = stash("currents", stashed.currents, Type::f32);
    const Operand state =
        parts_.of_neurons("state", l, Type::f32, 1U + (neuron.synaptic ? 1 : 0) + (neuron.adaptive ? 1 : 0),
                          batch, Purpose::activation);
    cleared_.push_back(state);
    std::optional<Operand> flags;
    if (neuron.spikes) {
      r.ids = parts_.of_samples("ids", l, Type::u16, rows(), problem.room(), Purpose::stash);
      r.num = parts_.of_samples("num", l, Type::u32, rows(), 2, Purpose::stash);
      flags = parts_.of_neurons("flags", l, Type::u8, batch, 1, Purpose::activation);
      cleared_.insert(cleared_.end(), {*flags, r.num->part({0, 1, 0, r.num->cols()})});
    }
    add_neurons(l, state, flags);
    if (flags) add_lists(l, *flags);
  }

  /// A weight where its neurons are.
  Operand resident(const Operand& weight, size_t l) {
    const auto mapping = map_neurons(layer(l), weight.rows());
    if (parts_.lies(weight, mapping)) return weight;
    const Operand moved = b_.like(weight, "weight", mapping, Purpose::parameter);
    prepare_.groups.push_back(copy_of(weight, moved));
    return moved;
  }

  void add_dynamics(size_t l, SpikingTileResults& r, std::vector<Operand>::const_iterator& parameter) {
    const Neuron& neuron = problems_[l].layer.neuron;
    const uint32_t neurons = problems_[l].layer.neurons;
    r.dynamics = parts_.of_neurons("dynamics", l, Type::f32, 4, 1, Purpose::parameter);
    const auto fill = [&](uint32_t row, bool has, const auto& from) {
      const Operand to = r.dynamics.part({row, 1, 0, neurons});
      if (!has) return cleared_.push_back(to);
      const Operand source = from();
      prepare_.groups.push_back(source.cols() == neurons ? copy_of(source, to) : spread(source, to, neurons));
    };
    const auto next = [&] { return *parameter++; };
    fill(0, true, next);
    fill(1, neuron.synaptic, next);
    fill(2, neuron.spikes, next);
    fill(3, neuron.spikes, [&] { return *o_.gradient_threshold; });
  }

  void add_neurons(size_t l, const Operand& state, const std::optional<Operand>& flags) {
    const SpikingProblem& problem = problems_[l];
    const SpikingTileResults& r = f_.layers[l];
    const uint32_t batch = parts_.batch();
    const bool recurs = problem.layer.recurrent;
    program::VertexGroup group = parts_.on_tiles(l, kernels::spiking_tile_forward_codelet);
    group.fields = {parts_.whole_row(l == 0 ? f_.in_ids : *f_.layers[l - 1].ids, 0, pass_),
                    parts_.whole_row(l == 0 ? f_.in_num : *f_.layers[l - 1].num, 0, pass_),
                    recurs ? parts_.whole_row(r.ids, 0, pass_) : parts_.none(),
                    recurs ? parts_.whole_row(r.num, 0, pass_) : parts_.none(),
                    parts_.neurons(f_.weights[l], l, 0, f_.weights[l].rows(), 1),
                    parts_.neurons(f_.recurrent[l], l, 0, problem.layer.neurons, 1),
                    parts_.neurons(r.dynamics, l, 0, 4, 1),
                    parts_.time(f_.times, l, pass_),
                    parts_.neurons(state, l, 0, state.rows(), batch),
                    parts_.neurons(flags, l, 0, batch, 1),
                    parts_.neurons(r.surrogate, l, 1, 1, batch, pass_),
                    parts_.neurons(r.resets, l, 1, 1, batch, pass_),
                    parts_.neurons(r.potentials, l, 1, 1, batch, pass_),
                    parts_.neurons(r.currents, l, 1, 1, batch, pass_)};
    group.params = parts_.params(l);
    neurons_.groups.push_back(std::move(group));
  }

  void add_lists(size_t l, const Operand& flags) {
    const SpikingProblem& problem = problems_[l];
    SpikingTileResults& r = f_.layers[l];
    const SpikingTileLayer& of = layer(l);
    const uint32_t words = o_.control->cols();
    std::vector<MappedBox> control_mapping, dropped_mapping;
    std::vector<Box> samples;
    std::vector<int64_t> first;
    for (uint32_t i = 0; i < of.list_tiles(); ++i) {
      const uint32_t begin = of.sample_begin[i], count = of.sample_begin[i + 1] - begin;
      control_mapping.push_back({{0, 1, i * words, words}, of.first_list_tile + i});
      dropped_mapping.push_back({{begin, count, 0, 2}, of.first_list_tile + i});
      samples.push_back({begin, count, 0, flags.cols()});
      first.push_back(begin);
    }
    const Operand control = b_.temporary("control", Type::u32, 1, of.list_tiles() * words, control_mapping);
    prepare_.groups.push_back(spread(*o_.control, control, of.list_tiles()));
    r.dropped = b_.temporary("dropped", Type::u32, parts_.batch(), 2, dropped_mapping, Purpose::metadata);
    cleared_.push_back(*r.dropped);
    program::VertexGroup group =
        SpikingTileParts::on_tiles(of.first_list_tile, of.list_tiles(), kernels::spiking_tile_lists_codelet);
    std::vector<Box> dropped = samples;
    for (Box& box : dropped) box.cols = 2;
    group.fields = {{flags.variable, BoxSeries::table(samples)},
                    {control.variable, BoxSeries::stepped({0, 1, 0, words}, {.col = words})},
                    parts_.time_of_lists(f_.times, l, pass_),
                    parts_.samples(*r.ids, l, 1, problem.room(), pass_),
                    parts_.samples(*r.num, l, 1, 2, pass_),
                    {r.dropped->variable, BoxSeries::table(dropped)}};
    group.params = {int64_t{problem.room()}, int64_t{problem.operation}, program::Param(std::move(first)),
                    parts_.expected_listed(l)};
    lists_.groups.push_back(std::move(group));
  }

  /// From the order of tiles to that of samples.
  void return_potentials(size_t l, const Operand& to) {
    const Operand from = f_.steps_of(*f_.layers[l].potentials, l, parts_.steps());
    b_.require(to, "potentials", Type::f32, parts_.steps(), parts_.batch() * layer(l).neurons);
    steps_.push_back(b_.copy({"potentials", {parts_.reordered(l, from, to, true)}}));
  }

  const Builder& b_;
  const std::vector<SpikingProblem>& problems_;
  const SpikingStackOperands& o_;
  SpikingTileForward f_;
  SpikingTileParts parts_;
  VariableId pass_ = 0;
  std::vector<Operand> cleared_;
  program::CopySet prepare_{"prepare", {}};
  program::ComputeSet neurons_{"neurons", program::Phase::compute, {}};
  program::ComputeSet lists_{"lists", program::Phase::compute, {}};
  std::vector<StepId> steps_;
};

}  // namespace

Operand SpikingTileForward::steps_of(const Operand& results, size_t layer, uint32_t steps) const {
  return results.part({partition.layers[layer].offset + 1, steps, 0, results.cols()});
}

SpikingTileForward build_spiking_on_tiles(const Builder& builder, const std::vector<SpikingProblem>& problems,
                                          const SpikingTilePartition& partition,
                                          const SpikingStackOperands& operands) {
  return ForwardBuild(builder, problems, partition, operands).build();
}

}  // namespace tessera::ops
