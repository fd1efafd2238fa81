#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "ops/map/fill.h"
#include "ops/map/reduce.h"
#include "ops/spiking/fields.h"

namespace tessera::ops {
namespace {

using kernels::SpikingShape;
using program::Box;
using program::CopyGroup;
using program::StepId;

CopyGroup copy_box(const Operand& from, const Box& source, const Operand& to, const Box& target) {
  return copy_of(from.part(source), to.part(target));
}

/// Weights and panels of them: which part lies where.
class Panels {
 public:
  Panels(const SpikingProblem& problem)
      : layer_(problem.layer),
        shape_(shape_of(problem, problem.batch)),
        width_(kernels::spiking_panel_width(layer_.neurons)),
        rows_(kernels::spiking_panel_rows(shape_)) {}

  uint32_t rows() const { return rows_; }
  uint32_t width() const { return width_; }

  /// Calls visit(weights, box of them, box of the panels), `weights` 0 for those of inputs, 1 for recurrent
  /// ones.
  template <class Visit>
  void each(const Visit& visit) const {
    for (uint32_t n = 0, row = 0; n < layer_.neurons; n += width_, row += shape_.sources()) {
      const uint32_t count = std::min(width_, layer_.neurons - n);
      visit(0U, Box{0, layer_.inputs, n, count}, Box{row, layer_.inputs, 0, count});
      if (layer_.recurrent)
        visit(1U, Box{0, layer_.neurons, n, count}, Box{row + layer_.inputs, layer_.neurons, 0, count});
    }
  }

  /// Columns beyond the last neuron.
  Box padding() const {
    const uint32_t used = (layer_.neurons - 1) % width_ + 1;
    return {rows_ - shape_.sources(), shape_.sources(), used, width_ - used};
  }

 private:
  const SpikingLayer& layer_;
  SpikingShape shape_;
  uint32_t width_;
  uint32_t rows_;
};

/// Adds the vertices of a pass.
class SpikingBuild {
 public:
  SpikingBuild(const Builder& builder, const SpikingProblem& problem, const BatchPartition& partition,
               const SpikingOperands& operands)
      : builder_(builder), problem_(problem), partition_(partition), o_(operands), panels_(problem) {}

  StepId build() {
    std::vector<StepId> steps;
    const SpikingPrepared prepared =
        o_.prepared ? *o_.prepared : prepare_spiking(builder_, problem_, o_.parameters, steps);
    const SpikingShape part = shape_of(problem_, partition_.most_samples());
    const BatchFields batch(builder_, partition_,
                            problem_.gradients ? kernels::spiking_gradients_scratch(part)
                                               : kernels::spiking_forward_scratch(part));
    std::vector<program::Field> fields = {batch.columns(o_.in_ids), batch.columns(o_.in_num),
                                          BatchFields::whole(prepared.weight),
                                          BatchFields::whole(prepared.dynamics)};
    problem_.gradients ? add_gradients_fields(batch, fields) : add_forward_fields(batch, fields);
    fields.push_back(batch.scratch());
    program::ComputeSet set = batch.vertices(
        problem_.gradients ? kernels::spiking_gradients_codelet : kernels::spiking_forward_codelet,
        std::move(fields), params_of(problem_, 0));
    set.groups[0].params[kernels::spiking_param::first_sample] = program::Param(
        std::vector<int64_t>(partition_.sample_begin.begin(), partition_.sample_begin.end() - 1));
    steps.push_back(builder_.execute(std::move(set)));
    if (problem_.gradients) add_parameter_gradients(batch, steps);
    return builder_.sequence(std::move(steps));
  }

 private:
  void add_forward_fields(const BatchFields& batch, std::vector<program::Field>& fields) const {
    fields.push_back(BatchFields::whole(*o_.control));
    fields.push_back(BatchFields::whole(*o_.gradient_threshold));
    for (const auto* of : {&o_.ids, &o_.num, &o_.surrogate, &o_.resets, &o_.potentials, &o_.currents})
      fields.push_back(batch.columns(*of));
    fields.push_back(batch.rows(o_.dropped));
  }

  void add_gradients_fields(const BatchFields& batch, std::vector<program::Field>& fields) {
    for (const auto* of :
         {&o_.ids, &o_.num, &o_.surrogate, &o_.resets, &o_.potentials, &o_.currents, &o_.upstream, &o_.din})
      fields.push_back(batch.columns(*of));
    dweight_ = batch.partials("dweight", panels_.rows(), panels_.width());
    fields.push_back(batch.part_of(dweight_));
    if (problem_.learns_dynamics) ddynamics_ = batch.partials("ddynamics", 3, problem_.layer.neurons);
    fields.push_back(problem_.learns_dynamics ? batch.part_of(ddynamics_) : batch.none());
  }

  /// The parts' gradients, added and where parameters have them.
  void add_parameter_gradients(const BatchFields& batch, std::vector<StepId>& steps) const {
    batch.add_up(dweight_, {}, steps);
    program::CopySet copies{"gradients of weights", {}};
    panels_.each([&](uint32_t of, const Box& weights, const Box& panel) {
      copies.groups.push_back(copy_box(dweight_, panel, o_.parameter_gradients[of], weights));
    });
    steps.push_back(builder_.copy(std::move(copies)));
    if (!problem_.learns_dynamics) return;
    batch.add_up(ddynamics_, {}, steps);
    size_t next = problem_.layer.recurrent ? 2 : 1;
    const Neuron& neuron = problem_.layer.neuron;
    add_dynamic(0, o_.parameter_gradients[next++], steps);
    if (neuron.synaptic) add_dynamic(1, o_.parameter_gradients[next++], steps);
    if (neuron.spikes) add_dynamic(2, o_.parameter_gradients[next++], steps);
  }

  void add_dynamic(uint32_t row, const Operand& to, std::vector<StepId>& steps) const {
    const uint32_t neurons = problem_.layer.neurons;
    const Operand from = ddynamics_.part({row, 1, 0, neurons});
    if (to.cols() == neurons) return builder_.send(from, to, steps);
    steps.push_back(
        add(builder_, AxisReduceProblem{.rows = 1, .cols = neurons, .over_rows = false}, {from, to}));
  }

  const Builder& builder_;
  const SpikingProblem& problem_;
  const BatchPartition& partition_;
  const SpikingOperands& o_;
  const Panels panels_;
  Operand dweight_, ddynamics_;
};

void require(const Builder& builder, const std::optional<Operand>& operand, std::string_view name,
             const SpikingMatrix& matrix) {
  if (operand.has_value() == matrix.empty())
    throw UsageError(fmt::format("a spiking layer {} here {}", matrix.empty() ? "has no" : "has",
                                 matrix.empty() ? fmt::format("{}, so it takes no operand for them", name)
                                                : fmt::format("{}; pass their operand", name)));
  if (operand) builder.require(*operand, name, matrix.type, matrix.rows, matrix.cols);
}

void check_operands(const Builder& builder, const SpikingProblem& p, const SpikingOperands& o) {
  builder.require(o.in_ids, "in_ids", Type::u16, p.steps, p.batch * p.in_capacity);
  builder.require(o.in_num, "in_num", Type::u32, p.steps, p.batch * 2);
  const std::vector<SpikingParameter> parameters = parameters_of(p.layer);
  const size_t weights = p.layer.recurrent ? 2 : 1;
  const size_t gradients = !p.gradients ? 0 : p.learns_dynamics ? parameters.size() : weights;
  if (o.parameters.size() != parameters.size() || o.parameter_gradients.size() != gradients)
    throw UsageError(
        fmt::format("this spiking layer has {} parameters and here {} gradients of them; given are {} "
                    "and {}",
                    parameters.size(), gradients, o.parameters.size(), o.parameter_gradients.size()));
  for (size_t i = 0; i < parameters.size(); ++i) {
    builder.require(o.parameters[i], parameters[i].name, Type::f32, parameters[i].rows, parameters[i].cols);
    if (i < gradients)
      builder.require(o.parameter_gradients[i], fmt::format("the gradient of {}", parameters[i].name),
                      Type::f32, parameters[i].rows, parameters[i].cols);
  }
  const SpikingResults r = results_of(p);
  const bool reads_potentials = p.layer.neuron.spikes || (p.trains && p.learns_dynamics);
  require(builder, o.ids, "ids", r.ids);
  require(builder, o.num, "num", r.num);
  require(builder, o.surrogate, "surrogate", r.surrogate);
  require(builder, o.resets, "resets", r.resets);
  if (!p.gradients || reads_potentials) require(builder, o.potentials, "potentials", r.potentials);
  require(builder, o.currents, "currents", r.currents);
  require(builder, o.dropped, "dropped", p.gradients ? SpikingMatrix{} : r.dropped);
  require(builder, o.control, "control", p.gradients ? SpikingMatrix{} : control_of(p));
  require(builder, o.gradient_threshold, "gradient_threshold",
          p.gradients ? SpikingMatrix{} : SpikingMatrix{Type::f32, 1, 1});
  require(builder, o.upstream, "upstream", p.gradients ? upstream_of(p) : SpikingMatrix{});
  require(builder, o.din, "din",
          p.gradients && p.input_gradient ? SpikingMatrix{Type::f32, p.steps, p.batch * p.in_capacity}
                                          : SpikingMatrix{});
}

}  // namespace

SpikingPrepared prepare_spiking(const Builder& builder, const SpikingProblem& problem,
                                const std::vector<Operand>& parameters, std::vector<StepId>& steps) {
  const SpikingLayer& layer = problem.layer;
  const Panels panels(problem);
  const Operand weight = builder.temporary("panels", Type::f32, panels.rows(), panels.width());
  const Operand dynamics = builder.temporary("dynamics", Type::f32, 3, layer.neurons);
  const auto fill = [&](const Operand& to) {
    if (!to.box.empty())
      steps.push_back(add(builder, FillProblem{.rows = to.rows(), .cols = to.cols()}, {to}));
  };
  fill(weight.part(panels.padding()));

  program::CopySet copies{"prepare weights", {}};
  panels.each([&](uint32_t of, const Box& weights, const Box& panel) {
    copies.groups.push_back(copy_box(parameters[of], weights, weight, panel));
  });
  // A scalar is broadcast to all neurons.
  size_t next = layer.recurrent ? 2 : 1;
  const auto spread = [&](uint32_t row, bool has) {
    const Operand to = dynamics.part({row, 1, 0, layer.neurons});
    if (!has) return fill(to);
    const Operand& from = parameters[next++];
    copies.groups.push_back(from.cols() == layer.neurons ? copy_of(from, to)
                                                         : copy_to_all(from, to, layer.neurons, {.col = 1}));
  };
  spread(0, true);
  spread(1, layer.neuron.synaptic);
  spread(2, layer.neuron.spikes);
  steps.push_back(builder.copy(std::move(copies)));
  return {weight, dynamics};
}

StepId build_spiking(const Builder& builder, const SpikingProblem& problem, const SpikingPlan& plan,
                     const SpikingOperands& operands) {
  check(problem);
  check_operands(builder, problem, operands);
  return SpikingBuild(builder, problem, plan.partition, operands).build();
}

}  // namespace tessera::ops
