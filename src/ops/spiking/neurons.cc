#include "ops/spiking/neurons.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <string>

#include "kernels/host/spiking/neurons.h"
#include "ops/map/elementwise.h"

namespace tessera::ops {
namespace {

using kernels::NeuronsShape;
using machine::Machine;
using program::Box;
using program::BoxSeries;
using program::FieldView;
using program::StepId;

/// A field of the codelet: what its vertices take of an operand.
struct Slot {
  enum Cut : uint8_t { samples, whole, summed };

  std::string_view name;
  std::optional<Operand> operand;
  Cut cut = samples;
  uint32_t rows = 0;  // of the operand
};

/// The fields in the order of the codelet, without its scratch memory.
std::vector<Slot> slots_of(const NeuronsProblem& p, const NeuronsOperands& o) {
  const uint32_t rows = p.recurrence == Recurrence::one_to_one ? 1 : p.neurons;
  if (!p.gradients)
    return {{"in", o.in, Slot::samples, p.steps},
            {"recurrent", o.recurrent, Slot::whole, rows},
            {"dynamics", o.dynamics, Slot::whole, 3},
            {"initial", o.initial, Slot::samples, 2},
            {"spikes", o.spikes, Slot::samples, p.steps},
            {"currents", o.currents, Slot::samples, p.steps},
            {"potentials", o.potentials, Slot::samples, p.steps},
            {"membranes", o.membranes, Slot::samples, p.steps}};
  return {{"potentials", o.potentials, Slot::samples, p.steps},
          {"currents", o.currents, Slot::samples, p.steps},
          {"recurrent", o.recurrent, Slot::whole, rows},
          {"dynamics", o.dynamics, Slot::whole, 3},
          {"initial", o.initial, Slot::samples, 2},
          {"dspikes", o.dspikes, Slot::samples, p.steps},
          {"dcurrents", o.dcurrents, Slot::samples, p.steps},
          {"dpotentials", o.dpotentials, Slot::samples, p.steps},
          {"dmembranes", o.dmembranes, Slot::samples, p.steps},
          {"din", o.din, Slot::samples, p.steps},
          {"drecurrent", o.drecurrent, Slot::summed, rows},
          {"ddynamics", o.ddynamics, Slot::summed, 3},
          {"dinitial", o.dinitial, Slot::samples, 2}};
}

const program::Codelet& codelet_of(const NeuronsProblem& p) {
  return p.gradients ? kernels::neurons_gradients_codelet : kernels::neurons_forward_codelet;
}

std::vector<int64_t> params_of(const NeuronsProblem& p) {
  std::vector<int64_t> params;
  for (const int64_t value : kernels::spiking_params(p.neuron, p.recurrence != Recurrence::none).values)
    params.push_back(value);
  params.push_back(p.after_reset ? 1 : 0);
  return params;
}

size_t scratch_floats(const NeuronsProblem& p, uint32_t samples) {
  const NeuronsShape shape{.steps = p.steps,
                           .samples = samples,
                           .neurons = p.neurons,
                           .one_to_one = p.recurrence == Recurrence::one_to_one || p.neurons == 1,
                           .all_to_all = p.recurrence == Recurrence::all_to_all && p.neurons > 1};
  return kernels::NeuronsScratch(shape, p.gradients).floats;
}

void check(const NeuronsProblem& p) {
  // What holds for neurons of a layer, whatever its inputs.
  parameters_of(
      {.inputs = 1, .neurons = p.neurons, .neuron = p.neuron, .recurrent = p.recurrence != Recurrence::none});
  if (p.neuron.adaptive) throw UsageError("neurons that take currents have no adaptive threshold");
  if (p.steps == 0 || p.batch == 0 || uint64_t{p.batch} * p.neurons >> 32 != 0)
    throw UsageError(
        fmt::format("neurons have {} steps, and {} samples of {}; there must be a step and a sample, and at "
                    "most {} neurons in a batch",
                    p.steps, p.batch, p.neurons, ~0U));
}

void check_operands(const Builder& builder, const NeuronsProblem& p, const NeuronsOperands& o) {
  if (o.recurrent.has_value() != (p.recurrence != Recurrence::none))
    throw UsageError("recurrent neurons need their weights, and others take none");
  const bool learns = o.ddynamics.has_value();
  const bool reads = p.neuron.spikes || learns;
  if (p.gradients && ((reads && !o.potentials) || (learns && p.neuron.synaptic && !o.currents)))
    throw UsageError("gradients of neurons that spike or learn need their potentials, and currents if any");
  if (!p.neuron.synaptic && (o.currents || o.dcurrents))
    throw UsageError("neurons without a synaptic current take no operand for one");
  if (!p.neuron.spikes && (o.spikes || o.dspikes))
    throw UsageError("neurons without spikes take no operand for them");
  for (const Slot& slot : slots_of(p, o))
    if (slot.operand)
      builder.require(*slot.operand, slot.name, Type::f32, slot.rows,
                      slot.cut == Slot::samples ? p.batch * p.neurons : p.neurons);
}

class NeuronsBuild {
 public:
  NeuronsBuild(const Builder& builder, const NeuronsProblem& problem, const BatchPartition& partition)
      : builder_(builder), problem_(problem), partition_(partition) {}

  StepId build(const NeuronsOperands& operands) const {
    program::VertexGroup group;
    group.codelet = &codelet_of(problem_);
    group.tiles = parts();
    const Operand scratch = add_scratch();
    std::vector<std::pair<Operand, Operand>> sums;  // partial ones, and where they go
    for (const Slot& slot : slots_of(problem_, operands)) {
      if (!slot.operand) {
        group.fields.push_back({scratch.variable, BoxSeries::same(Box{})});
      } else if (slot.cut == Slot::samples) {
        group.fields.push_back(samples(*slot.operand));
      } else if (slot.cut == Slot::whole || parts() == 1) {
        group.fields.push_back({slot.operand->variable, BoxSeries::same(slot.operand->box)});
      } else {
        const Operand partials =
            builder_.temporary(std::string(slot.name), Type::f32, parts() * slot.rows, slot.operand->cols());
        group.fields.push_back(part_of(partials, slot.rows));
        sums.emplace_back(partials, *slot.operand);
      }
    }
    group.fields.push_back(part_of(scratch, 1));
    for (const int64_t value : params_of(problem_)) group.params.emplace_back(value);
    program::ComputeSet set{std::string(group.codelet->name), program::Phase::compute, {}};
    set.groups.push_back(std::move(group));
    std::vector<StepId> steps = {builder_.execute(std::move(set))};
    for (const auto& [partials, sum] : sums) add_up(partials, sum, steps);
    return builder_.sequence(std::move(steps));
  }

 private:
  uint32_t parts() const { return partition_.parts(); }

  program::Field samples(const Operand& operand) const {
    std::vector<Box> boxes;
    for (uint32_t i = 0; i < parts(); ++i) {
      const uint32_t begin = partition_.sample_begin[i], end = partition_.sample_begin[i + 1];
      boxes.push_back(
          operand.inside(Box{0, operand.rows(), begin * problem_.neurons, (end - begin) * problem_.neurons}));
    }
    return {operand.variable, BoxSeries::table(std::move(boxes))};
  }

  static program::Field part_of(const Operand& partials, uint32_t rows) {
    return {partials.variable, BoxSeries::stepped({0, rows, 0, partials.cols()}, {.row = rows})};
  }

  Operand add_scratch() const {
    constexpr size_t kLine = 16;
    const uint32_t most = partition_.most_samples();
    const auto cols = static_cast<uint32_t>((scratch_floats(problem_, most) + kLine - 1) / kLine * kLine);
    return builder_.temporary("scratch", Type::f32, parts(), cols);
  }

  /// In a tree, into the first part, and from there to the sum.
  void add_up(const Operand& partials, const Operand& sum, std::vector<StepId>& steps) const {
    const uint32_t of_part = sum.rows();
    const auto rows = [&](uint32_t part, uint32_t count) {
      return Operand{partials.variable,
                     partials.inside(Box{part * of_part, count * of_part, 0, partials.cols()})};
    };
    for (uint32_t left = parts(); left > 1;) {
      const uint32_t half = left / 2;
      const BinaryProblem add_parts{
          .op = kernels::Binary::add, .rows = half * of_part, .cols = partials.cols()};
      const Operand to = left == 2 ? sum : rows(0, half);
      steps.push_back(add(builder_, add_parts, {rows(0, half), rows(left - half, half), to}));
      left -= half;
    }
  }

  const Builder& builder_;
  const NeuronsProblem& problem_;
  const BatchPartition& partition_;
};

PlanCandidate weigh(const NeuronsProblem& p, const NeuronsOperands& o, const BatchPartition& partition,
                    const Machine& m) {
  const uint32_t samples = partition.most_samples();
  std::vector<FieldView> fields;
  double summed = 0;
  for (const Slot& slot : slots_of(p, o)) {
    const uint32_t cols = slot.cut == Slot::samples ? samples * p.neurons : p.neurons;
    fields.push_back(slot.operand ? FieldView{nullptr, Type::f32, slot.rows, cols, cols, 1} : FieldView{});
    if (slot.operand && slot.cut == Slot::summed) summed += double{1} * slot.rows * cols;
  }
  fields.push_back({nullptr, Type::f32, 1, 1, 1, 1});
  const std::vector<int64_t> params = params_of(p);
  double reduction_seconds = 0;
  if (partition.parts() > 1 && summed > 0)
    reduction_seconds = plan(BinaryProblem{.op = kernels::Binary::add,
                                           .rows = partition.parts() - 1,
                                           .cols = static_cast<uint32_t>(std::min(summed, 1e9))},
                             m)
                            .chosen.total();
  return batch_candidate(partition, m, codelet_of(p).cost({fields, params}, m), reduction_seconds,
                         scratch_floats(p, samples) * sizeof(float));
}

}  // namespace

SpikingPlan plan_neurons(const NeuronsProblem& problem, const NeuronsOperands& operands,
                         const Machine& machine) {
  check(problem);
  if (machine.kind != machine::Kind::host)
    throw UsageError(fmt::format("neurons that take currents run on hosts; {} is none", machine.name));
  return plan_batch(problem.batch, 1, machine, [&](const BatchPartition& partition) {
    return weigh(problem, operands, partition, machine);
  });
}

StepId build_neurons(const Builder& builder, const NeuronsProblem& problem, const SpikingPlan& plan,
                     const NeuronsOperands& operands) {
  check(problem);
  check_operands(builder, problem, operands);
  return NeuronsBuild(builder, problem, plan.partition).build(operands);
}

}  // namespace tessera::ops
