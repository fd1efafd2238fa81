// Neurons that take currents as codelets: what their vertices cost, and their working memory.
#include <algorithm>

#include "kernels/common/cost.h"
#include "kernels/host/spiking/neurons.h"

namespace tessera::kernels {
namespace {

using program::FieldView;

// Operations per neuron and step: to update its states; to pass gradients back.
constexpr double kForwardOperations = 14;
constexpr double kBackwardOperations = 30;
// Assumed fraction of neurons that fire in a step, where spikes go to all other neurons.
constexpr double kActivity = 0.05;

// Number of independent neurons that go through the steps together, and number of samples of neurons with
// weights among them.
constexpr uint32_t kColumns = 4096;
constexpr uint32_t kSamples = 16;

double updates(const NeuronsShape& shape) { return double{1} * shape.steps * shape.samples * shape.neurons; }

}  // namespace

NeuronsShape neurons_shape(const FieldView& rows, const FieldView& dynamics, const FieldView& recurrent) {
  NeuronsShape shape;
  shape.steps = rows.rows;
  shape.neurons = dynamics.cols;
  shape.samples = shape.neurons == 0 ? 0 : rows.cols / shape.neurons;
  shape.one_to_one = recurrent.rows == 1;
  shape.all_to_all = recurrent.rows > 1;
  return shape;
}

NeuronsScratch::NeuronsScratch(const NeuronsShape& s, bool gradients)
    : chunk(s.all_to_all ? s.neurons : std::min(s.neurons, kColumns)),
      columns((chunk + kSpikingPanel - 1) / kSpikingPanel * kSpikingPanel) {
  // Gradients pass weights for four samples at a time.
  const uint32_t most = std::max(1U, (s.samples + 3) / 4 * 4);
  samples = s.all_to_all ? std::min(most, kSamples)
                         : std::min(most, std::max(1U, kColumns / std::max(1U, columns)));
  SpikingArena arena;
  potential = arena.allocate<float>(size_t{samples} * columns);
  current = arena.allocate<float>(size_t{samples} * columns);
  if (s.one_to_one) spiked = arena.allocate<float>(size_t{samples} * columns);
  if (s.all_to_all) {
    sum = arena.allocate<float>(size_t{gradients ? samples : 1} * columns);
    own_ids = arena.allocate<uint32_t>((gradients ? 1 : samples) * (size_t{columns} + kSpikingSlack));
    own_counts = arena.allocate<uint32_t>(samples);
    if (gradients) transposed = arena.allocate<float>(size_t{s.neurons} * columns);
  }
  floats = arena.floats();
}

program::PhaseTimes neurons_forward_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace neurons_forward_field;
  const NeuronsShape shape = neurons_shape(v.fields[in], v.fields[dynamics], v.fields[recurrent]);
  HostWork work = traffic_of(v.fields.first(scratch), spikes);
  work.vector_operations = updates(shape) * kForwardOperations;
  double cycles = host_cycles(m, work);
  if (shape.all_to_all) {
    const double row_bytes = double{1} * shape.neurons * sizeof(float);
    cycles += updates(shape) * kActivity * row_bytes / streaming_rate(row_bytes * shape.neurons, m.figures);
  }
  return in_phase(program::Phase::compute, cycles);
}

program::PhaseTimes neurons_gradients_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace neurons_gradients_field;
  const NeuronsShape shape = neurons_shape(v.fields[din], v.fields[dynamics], v.fields[recurrent]);
  const double products = shape.all_to_all ? updates(shape) * shape.neurons * (1 + kActivity) : 0;
  HostWork work = traffic_of(v.fields.first(scratch), din);
  work.vector_operations = updates(shape) * kBackwardOperations + products;
  return in_phase(program::Phase::compute, host_cycles(m, work));
}

TESSERA_DEFINE_FAMILY(neurons, TESSERA_NEURONS_CODELETS, TESSERA_HOST_CODELET)

}  // namespace tessera::kernels
