// How often each neuron fired, from lists of spikes.
#include <fmt/format.h>
#include <tessera/error.h>

#include "graph/list_inputs.h"
#include "lower/lowering.h"
#include "operations/list.h"
#include "operations/spike_lists.h"
#include "operations/spiking_node.h"
#include "ops/spiking/counts.h"

namespace tessera::graph {
namespace {

using ops::Operand;

ops::SpikeCountsProblem counts_problem(const Graph& graph, const Node& node, bool gradient) {
  const TensorType& ids = graph.type(node.inputs[0]);
  const uint32_t batch = spiking_size(node, "batch");
  return {.steps = ids.rows(),
          .batch = batch,
          .capacity = ids.cols() / batch,
          .neurons = spiking_size(node, "neurons"),
          .gradient = gradient,
          .expected = ids.cols() / batch / 2.0};
}

Types infer_counts(const Signature& s) {
  const uint32_t batch = spiking_size(s.attributes, "batch");
  require_lists(s, batch);
  return {{Type::f32, {batch, spiking_size(s.attributes, "neurons")}, {}, {}}};
}

Types infer_counts_gradient(const Signature& s) {
  const Types counts = infer_counts(s);
  require_type(s, s.inputs[2], "the gradient of counts", counts[0]);
  return {{Type::f32, s.inputs[0].shape, {}, {}}};
}

ListArrays counted_lists(const Evaluation& e) {
  const uint32_t batch = spiking_size(e.node, "batch");
  return {*e.inputs[0], *e.inputs[1], e.input_type(0).rows(), batch, e.input_type(0).cols() / batch};
}

std::vector<Array> counts_reference(const Evaluation& e) {
  const ListArrays lists = counted_lists(e);
  const uint32_t neurons = spiking_size(e.node, "neurons");
  Array counts(uint64_t{lists.batch} * neurons);
  lists.each([&](uint32_t t, uint32_t b, uint32_t i) {
    const uint32_t id = lists.id(t, b, i);
    if (i < lists.fired(t, b) && id < neurons) counts[uint64_t{b} * neurons + id] += 1;
  });
  return {counts};
}

std::vector<Array> counts_gradient_reference(const Evaluation& e) {
  const ListArrays lists = counted_lists(e);
  const uint32_t neurons = spiking_size(e.node, "neurons");
  Array dids(e.inputs[0]->size(), kUnspecified);
  lists.each([&](uint32_t t, uint32_t b, uint32_t i) {
    const uint32_t id = lists.id(t, b, i);
    dids[lists.row(t, b) * lists.capacity + i] =
        id < neurons ? (*e.inputs[2])[uint64_t{b} * neurons + id] : 0;
  });
  return {dids};
}

void lower_counts(Lowering& l, const Node& node) {
  const ops::SpikeCountsProblem problem = counts_problem(l.graph(), node, false);
  l.add(problem, {l.input(0), l.input(1), l.output(0)});
}

void lower_counts_gradient(Lowering& l, const Node& node) {
  const ops::SpikeCountsProblem problem = counts_problem(l.graph(), node, true);
  const auto partition = ops::plan(problem, l.builder().machine()).partition;
  const Operand dids = l.output(0, ops::map_samples(partition, problem.steps, problem.capacity));
  l.add(problem, {l.input(0), l.input(1), l.input(2), dids});
}

Gradients counts_gradient(const Differentiation& d) {
  return {d.graph.apply("spike_counts_gradient", {d.input(0), d.input(1), *d.dy[0]}, d.node.attributes)[0],
          {}};
}

std::vector<Case> counts_cases() {
  Case c{
      .inputs = {}, .attributes = {{"batch", int64_t{5}}, {"neurons", int64_t{33}}}, .differentiable = false};
  add_lists(c, 12, 5, 10, 33);
  return {c};
}

std::vector<Case> counts_gradient_cases() {
  Case c = counts_cases()[0];
  c.inputs.push_back({Type::f32, {5, 33}, {}, {}});
  return {c};
}

ListOperands spike_counts_lists(const Graph&, const Node& node) {
  return {spiking_size(node, "batch"), spiking_size(node, "neurons")};
}

constexpr Operation kCounts[] = {
    {"spike_counts",
     2,
     2,
     infer_counts,
     counts_gradient,
     counts_reference,
     row_layouts,
     lower_counts,
     counts_cases,
     {.lists = spike_counts_lists}},
    {"spike_counts_gradient",
     3,
     3,
     infer_counts_gradient,
     nullptr,
     counts_gradient_reference,
     row_layouts,
     lower_counts_gradient,
     counts_gradient_cases,
     {.lists = spike_counts_lists}},
};

}  // namespace

std::span<const Operation> spike_counts_operations() { return kCounts; }

void require_lists(const Signature& s, uint32_t batch) {
  const TensorType &ids = s.inputs[0], &num = s.inputs[1];
  if (ids.type != Type::u16 || ids.shape.size() != 2 || ids.cols() % batch != 0)
    throw UsageError(fmt::format("{}: ids are {}; they must be u16[steps, {} · capacity]", s.operation,
                                 to_string(ids), batch));
  require_type(s, num, "num", {Type::u32, {ids.rows(), batch * 2}, {}, {}});
  check_sources_of_lists(s);
}

void add_lists(Case& c, uint32_t steps, uint32_t batch, uint32_t capacity, uint32_t inputs) {
  const size_t first = c.inputs.size();
  c.inputs.push_back({Type::u16, {steps, batch * capacity}, {}, {}});
  c.inputs.push_back({Type::u32, {steps, batch * 2}, {}, {}});
  Array ids, num;
  for (uint32_t row = 0; row < steps * batch; ++row) {
    const uint32_t listed = row * 7 % (capacity + 1), fired = (2 * listed + 2) / 3;
    num.insert(num.end(), {double(fired), double(listed)});
    for (uint32_t i = 0; i < capacity; ++i) {
      // Ascending in both parts, and no neuron twice.
      const uint32_t stride = inputs / capacity;
      ids.push_back(i < listed ? double(i * stride + row * 3 % stride) : 0);
    }
  }
  c.given[first] = std::move(ids);
  c.given[first + 1] = std::move(num);
}

Value spike_counts(const Spikes& spikes, uint32_t neurons) {
  return spikes.ids.owner().apply("spike_counts", {spikes.ids, spikes.num},
                                  {{"batch", int64_t{spikes.batch}}, {"neurons", int64_t{neurons}}})[0];
}

}  // namespace tessera::graph
