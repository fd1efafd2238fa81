#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>

#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "kernels/tile/spiking/codelet.h"
#include "ops/map/reduce.h"
#include "ops/owners.h"
#include "ops/spiking/tiles/parts.h"
#include "ops/split.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::MappedBox;
using program::Purpose;
using program::StepId;
using program::VariableId;

/// Partial gradients of the places of a list: a row on each tile of a layer.
struct Partial {
  Operand rows;
  size_t layer;
};

class GradientsBuild {
 public:
  GradientsBuild(const Builder& builder, const std::vector<SpikingProblem>& problems,
                 const SpikingTileForward& forward, const SpikingStackOperands& operands)
      : b_(builder),
        problems_(problems),
        f_(forward),
        o_(operands),
        parts_(builder, problems, forward.partition),
        partials_(problems.size() + 1) {}

  StepId build() {
    add_pass();
    for (size_t l = 0; l < problems_.size(); ++l) add_partials(l);
    size_t gradient = 0;
    for (size_t l = 0; l < problems_.size(); ++l) {
      add_upstream(l);
      add_layer(l, gradient);
    }
    if (o_.din) add_input_gradient();
    add_loop();
    steps_.insert(steps_.end(), after_.begin(), after_.end());
    return b_.sequence(std::move(steps_));
  }

 private:
  const SpikingTilePartition& p() const { return f_.partition; }
  uint32_t passes() const { return p().passes; }

  /// The passes of the forward loop, from the last to the first.
  void add_pass() {
    const auto back = std::make_shared<std::vector<uint32_t>>();
    for (uint32_t k = passes(); k-- > 0;) back->push_back(k);
    const Operand order = b_.constant("passes", Type::u32, passes(), 1,
                                      {back, reinterpret_cast<const std::byte*>(back->data())},
                                      program::map_to_tile(passes(), 1, 0));
    const Operand pass = b_.temporary("pass.back", Type::u32, 1, 1, program::map_to_tile(1, 1, 0));
    counter_ = b_.temporary("counter", Type::u32, 1, 1, program::map_to_tile(1, 1, 0)).variable;
    pass_ = pass.variable;
    program::CopyGroup next = copy_of(order.part({0, 1, 0, 1}), pass);
    next.source_offset = program::RuntimeRow{counter_, 1};
    next_pass_ = b_.copy({"pass", {std::move(next)}});
  }

  /// partials_[l] are those of the lists that layer l takes, [l + 1] also of a recurrent layer's own.
  void add_partials(size_t l) {
    const SpikingProblem& problem = problems_[l];
    if (l > 0 || o_.din) add_partial(l, l, problem.in_capacity, f_.weights[l]);
    if (problem.layer.recurrent) add_partial(l + 1, l, problem.room(), *f_.recurrent[l]);
  }
  void add_partial(size_t list, size_t l, uint32_t capacity, const Operand& weight) {
    const uint32_t tiles = p().layers[l].tiles, cols = parts_.batch() * capacity;
    const Operand rows = b_.temporary("din.part", b_.type_of(weight), tiles, cols,
                                      program::map_rows_to_tiles(tiles, cols, p().layers[l].first_tile));
    cleared_.push_back(rows);
    partials_[list].push_back({rows, l});
  }
  std::optional<Operand> partial_of(size_t list, size_t l) const {
    for (const Partial& partial : partials_[list])
      if (partial.layer == l) return partial.rows;
    return {};
  }

  /// Gradients from outside in the order of passes, and with those of later steps and layers added.
  void add_upstream(size_t l) {
    const SpikingProblem& problem = problems_[l];
    const std::optional<Operand>& given = o_.layers[l].upstream;
    upstream_.emplace_back();
    std::optional<Operand> outside;
    if (given) {
      const bool spikes = problem.layer.neuron.spikes;
      outside =
          spikes ? b_.temporary("upstream", Type::f32, passes(), given->cols(),
                                slices(passes(), given->cols(), l))
                 : parts_.of_neurons("upstream", l, Type::f32, passes(), parts_.batch(), Purpose::activation);
      const Operand rows = outside->part({p().layers[l].offset, parts_.steps(), 0, given->cols()});
      prepare_.groups.push_back(spikes ? copy_of(*given, rows)
                                       : parts_.reordered(l, sample_by_sample(*given), rows, false));
    }
    if (partials_[l + 1].empty()) {
      upstream_[l] = outside;
      return;
    }
    const uint32_t cols = parts_.batch() * problem.room();
    const Operand sum = b_.temporary("upstream.sum", Type::f32, 1, cols, slices(1, cols, l));
    reduce(l + 1, l, outside, sum, {}, first_stage_, second_stage_);
    upstream_[l] = sum;
    is_sum_.resize(l + 1);
    is_sum_[l] = true;
  }

  /// With the columns of a sample on one tile, so that few copies bring them to the neurons'.
  Operand sample_by_sample(const Operand& given) {
    const auto mapping = map_lists(p().layers[0], parts_.steps(), given.cols() / parts_.batch());
    if (parts_.lies(given, mapping)) return given;
    const Operand gathered = b_.temporary("upstream.samples", Type::f32, given.rows(), given.cols(), mapping);
    b_.send(given, gathered, steps_);
    return gathered;
  }

  /// Columns of rows spread over the tiles of a layer.
  std::vector<MappedBox> slices(uint32_t rows, uint32_t cols, size_t l) const {
    const std::vector<uint32_t> begin = split_evenly(cols, p().layers[l].tiles, kGrain);
    std::vector<MappedBox> mapping;
    for (uint32_t i = 0; i + 1 < begin.size(); ++i)
      mapping.push_back({{0, rows, begin[i], begin[i + 1] - begin[i]}, p().layers[l].first_tile + i});
    return mapping;
  }

  /// Adds partial rows in two stages, first within groups of tiles: as little is exchanged as in one, between
  /// far fewer pairs of tiles. `moved_by` is the row of the result.
  void reduce(size_t list, size_t l, const std::optional<Operand>& outside, const Operand& sum,
              std::optional<VariableId> moved_by, program::ComputeSet& first, program::ComputeSet& second) {
    const uint32_t cols = sum.cols();
    std::vector<MappedBox> owners;
    uint32_t rows = 0;
    std::vector<std::pair<Operand, std::vector<Box>>> read;
    for (const Partial& partial : partials_[list]) {
      const uint32_t tiles = p().layers[partial.layer].tiles;
      const std::vector<uint32_t> groups = split_evenly(tiles, groups_of(tiles));
      std::vector<Box> boxes;
      for (uint32_t g = 0; g + 1 < groups.size(); ++g, ++rows) {
        const uint32_t count = groups[g + 1] - groups[g];
        const std::vector<uint32_t> begin = split_evenly(cols, count, kGrain);
        for (uint32_t i = 0; i + 1 < begin.size(); ++i) {
          owners.push_back({{rows, 1, begin[i], begin[i + 1] - begin[i]},
                            p().layers[partial.layer].first_tile + groups[g] + i});
          boxes.push_back({groups[g], count, begin[i], begin[i + 1] - begin[i]});
        }
      }
      read.emplace_back(partial.rows, std::move(boxes));
    }
    const std::vector<MappedBox> slice = slices(1, cols, l);
    std::vector<MappedBox> mapping = owners;
    for (MappedBox mapped : slice) {
      mapped.box.row = rows;
      if (outside) mapping.push_back(mapped);
    }
    const Operand sums =
        b_.temporary("din.sums", Type::f32, rows + (outside ? 1 : 0), cols, std::move(mapping));
    size_t next = 0;
    for (auto& [partial, boxes] : read) {
      const std::vector<MappedBox> own(owners.begin() + static_cast<std::ptrdiff_t>(next),
                                       owners.begin() + static_cast<std::ptrdiff_t>(next + boxes.size()));
      next += boxes.size();
      add_groups(first, groups_of_owners(own, kernels::reduce_sum_codelet,
                                         {{partial, std::move(boxes)}, {sums, boxes_of(own)}}, {kOne}));
    }
    if (outside) {
      program::CopyGroup row = copy_of(outside->part({0, 1, 0, cols}), sums.part({rows, 1, 0, cols}));
      row.source_offset = program::RuntimeRow{pass_, 1};
      outside_.groups.push_back(std::move(row));
    }
    std::vector<Box> all;
    for (const MappedBox& mapped : slice) all.push_back({0, sums.rows(), mapped.box.col, mapped.box.cols});
    std::vector<program::VertexGroup> groups = groups_of_owners(
        slice, kernels::reduce_sum_codelet, {{sums, std::move(all)}, {sum, boxes_of(slice)}}, {kOne});
    for (program::VertexGroup& group : groups)
      if (moved_by) group.fields[1].row = program::RuntimeRow{*moved_by, 1};
    add_groups(second, std::move(groups));
  }
  static void add_groups(program::ComputeSet& set, std::vector<program::VertexGroup> groups) {
    std::ranges::move(groups, std::back_inserter(set.groups));
  }
  static uint32_t groups_of(uint32_t tiles) {
    constexpr uint32_t kFew = 16;
    return tiles <= kFew ? 1 : static_cast<uint32_t>(std::ceil(std::sqrt(tiles)));
  }

  void add_layer(size_t l, size_t& gradient) {
    const SpikingProblem& problem = problems_[l];
    const SpikingTileResults& r = f_.layers[l];
    const uint32_t batch = parts_.batch();
    const bool spikes = problem.layer.neuron.spikes;
    const bool is_sum = l < is_sum_.size() && is_sum_[l];
    const Operand state = parts_.of_neurons("state.back", l, Type::f32, 3, batch, Purpose::activation);
    const Operand dx = parts_.of_neurons("dx", l, Type::f32, 1, batch, Purpose::activation);
    cleared_.push_back(state);
    std::optional<Operand> ddynamics;
    if (problem.learns_dynamics) {
      ddynamics = parts_.of_neurons("ddynamics", l, Type::f32, 3, 1, Purpose::gradient);
      cleared_.push_back(*ddynamics);
    }
    const Neuron& neuron = problem.layer.neuron;
    const bool reads_potentials =
        problem.learns_dynamics ||
        (spikes && neuron.reset == Reset::zero && neuron.reset_gradient == ResetGradient::attached);
    program::VertexGroup group = parts_.on_tiles(l, kernels::spiking_tile_backward_codelet);
    group.fields = {parts_.whole_row(r.ids, 1, pass_),
                    parts_.whole_row(r.num, 1, pass_),
                    !upstream_[l] ? parts_.none()
                    : !spikes
                        ? parts_.neurons(upstream_[l], l, 0, 1, batch, pass_)
                        : parts_.whole_row(upstream_[l], 0, is_sum ? std::nullopt : std::optional(pass_)),
                    parts_.neurons(r.dynamics, l, 0, 4, 1),
                    parts_.time(f_.times, l, pass_),
                    parts_.neurons(r.surrogate, l, 1, 1, batch, pass_),
                    parts_.neurons(r.resets, l, 0, 2, batch, pass_),
                    reads_potentials ? parts_.neurons(r.potentials, l, 0, 2, batch, pass_) : parts_.none(),
                    parts_.neurons(r.currents, l, 0, 1, batch, pass_),
                    parts_.neurons(state, l, 0, 3, batch),
                    parts_.neurons(ddynamics, l, 0, 3, 1),
                    parts_.neurons(dx, l, 0, 1, batch)};
    group.params = parts_.params(l);
    back_.groups.push_back(std::move(group));

    const bool is_first = l == 0;
    add_rows(l, {is_first ? f_.in_ids : *f_.layers[l - 1].ids, is_first ? f_.in_num : *f_.layers[l - 1].num},
             f_.weights[l], dx, partial_of(l, l), problem.in_capacity, parts_.expected_inputs(l),
             o_.parameter_gradients[gradient++]);
    if (problem.layer.recurrent)
      add_rows(l, {*r.ids, *r.num}, *f_.recurrent[l], dx, partial_of(l + 1, l), problem.room(),
               parts_.expected_listed(l), o_.parameter_gradients[gradient++]);
    if (!ddynamics) return;
    return_dynamics(*ddynamics, 0, gradient);
    if (neuron.synaptic) return_dynamics(*ddynamics, 1, gradient);
    if (spikes) return_dynamics(*ddynamics, 2, gradient);
  }

  struct Lists {
    Operand ids, num;
  };

  /// Gradients of weights, and of the neurons whose spikes they weigh.
  void add_rows(size_t l, const Lists& lists, const Operand& weight, const Operand& dx,
                const std::optional<Operand>& din, uint32_t capacity, int64_t expected,
                const Operand& gradient) {
    const auto mapping = map_neurons(p().layers[l], gradient.rows());
    Operand dweight = gradient;
    if (!parts_.lies(gradient, mapping)) {
      dweight =
          b_.temporary("dweight", Type::f32, gradient.rows(), gradient.cols(), mapping, Purpose::gradient);
      b_.send(dweight, gradient, after_);
    }
    cleared_.push_back(dweight);
    program::VertexGroup group = parts_.on_tiles(l, kernels::spiking_tile_rows_codelet);
    group.fields = {
        parts_.whole_row(lists.ids, 0, pass_),
        parts_.whole_row(lists.num, 0, pass_),
        din ? parts_.neurons(weight, l, 0, weight.rows(), 1) : parts_.none(),
        parts_.neurons(dx, l, 0, 1, parts_.batch()),
        parts_.time(f_.times, l, pass_),
        parts_.neurons(dweight, l, 0, dweight.rows(), 1),
        din ? program::Field{din->variable, BoxSeries::stepped({0, 1, 0, din->cols()}, {.row = 1})}
            : parts_.none()};
    group.params = {int64_t{capacity}, expected};
    rows_.groups.push_back(std::move(group));
  }

  void return_dynamics(const Operand& ddynamics, uint32_t row, size_t& gradient) {
    const Operand& to = o_.parameter_gradients[gradient++];
    const Operand from = ddynamics.part({row, 1, 0, ddynamics.cols()});
    if (to.cols() == from.cols()) return b_.send(from, to, after_);
    after_.push_back(
        add(b_, AxisReduceProblem{.rows = 1, .cols = from.cols(), .over_rows = false}, {from, to}));
  }

  void add_input_gradient() {
    const uint32_t first = p().input_row, rows = std::max(passes(), parts_.steps() + first);
    const Operand din = b_.temporary("din", Type::f32, rows, o_.din->cols(), slices(rows, o_.din->cols(), 0));
    // Inputs that arrive after the last step have no gradient.
    if (rows > passes()) cleared_.push_back(din.part({passes(), rows - passes(), 0, din.cols()}));
    reduce(0, 0, {}, din.part({0, 1, 0, din.cols()}), pass_, input_first_, input_second_);
    b_.send(din.part({first, parts_.steps(), 0, din.cols()}), *o_.din, after_);
  }

  void add_loop() {
    steps_.push_back(parts_.clear(cleared_));
    b_.copy(std::move(prepare_), steps_);
    std::vector<StepId> body = {next_pass_};
    b_.copy(std::move(outside_), body);
    for (program::ComputeSet* set :
         {&first_stage_, &second_stage_, &back_, &rows_, &input_first_, &input_second_})
      if (!set->groups.empty()) body.push_back(b_.execute(std::move(*set)));
    steps_.push_back(b_.repeat(passes(), b_.sequence(std::move(body)), counter_));
  }

  // Slices of rows are whole vectors.
  static constexpr uint32_t kGrain = 4;
  const program::Param kOne = kernels::param_of(1);

  const Builder& b_;
  const std::vector<SpikingProblem>& problems_;
  const SpikingTileForward& f_;
  const SpikingStackOperands& o_;
  SpikingTileParts parts_;
  VariableId counter_ = 0, pass_ = 0;
  StepId next_pass_ = 0;
  std::vector<std::vector<Partial>> partials_;
  std::vector<std::optional<Operand>> upstream_;
  std::vector<bool> is_sum_;
  std::vector<Operand> cleared_;
  program::CopySet prepare_{"upstream", {}}, outside_{"upstream of the pass", {}};
  program::ComputeSet first_stage_{"reduce in groups", program::Phase::reduce, {}},
      second_stage_{"reduce groups", program::Phase::reduce, {}},
      back_{"neurons backward", program::Phase::compute, {}}, rows_{"rows", program::Phase::compute, {}},
      input_first_{"reduce inputs in groups", program::Phase::reduce, {}},
      input_second_{"reduce groups of inputs", program::Phase::reduce, {}};
  std::vector<StepId> steps_, after_;
};

}  // namespace

StepId build_spiking_gradients_on_tiles(const Builder& builder, const std::vector<SpikingProblem>& problems,
                                        const SpikingTileForward& forward,
                                        const SpikingStackOperands& operands) {
  return GradientsBuild(builder, problems, forward, operands).build();
}

}  // namespace tessera::ops
