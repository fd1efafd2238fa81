// Comparison of sessions' results with results in float64.
#pragma once

#include <tessera/graph.h>

#include "graph/transforms/transforms.h"
#include "random_values.h"
#include "support/numbers.h"

namespace tessera::graph {

inline Arrays narrowed(const WideArrays& wide) {
  Arrays arrays;
  for (const auto& [name, values] : wide) arrays[name] = narrowed(values);
  return arrays;
}
inline WideArrays widened(const Arrays& narrow) {
  WideArrays arrays;
  for (const auto& [name, values] : narrow) arrays[name] = {values.begin(), values.end()};
  return arrays;
}

/// Compares each array relative to its largest element, or to `least` if that is larger.
template <class Found>
void expect_near(const Found& found, const WideArrays& expected, double relative, double least = 0) {
  for (const auto& [name, values] : expected)
    test::expect_near(found.at(name), values, relative * test::largest(values, least), name);
}

/// Compares each element relative to itself, or to 1 if that is larger.
template <class Found>
void expect_each_near(const Found& found, const WideArrays& expected, double relative) {
  for (const auto& [name, values] : expected) {
    ASSERT_EQ(found.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(found.at(name)[i], values[i], relative * std::max(1.0, std::abs(values[i])))
          << name << ", element " << i;
  }
}

/// Random inputs of a graph; integers are below 5.
inline WideArrays random_inputs(const Graph& graph) {
  WideArrays arrays;
  for (ValueId id : graph.inputs())
    arrays[graph.info(id).name] = random_values(graph.bound_type(id), -1, 1, 5, 9, id);
  return arrays;
}

/// Expects outputs and state of two steps from random parameters to equal those in float64, on a host, on
/// tiles and on chips.
inline void expect_like_float64(const Graph& graph, const WideArrays& inputs) {
  verify(graph);
  for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 12),
                                 Machine::find("m2000").with("chips", 2).with("tiles", 4)}) {
    SCOPED_TRACE(machine.name());
    Session session(graph, machine, {.seed = 3});
    for (uint32_t step = 0; step < 2; ++step) {
      WideArrays state = widened(session.state());
      const Arrays found = session.run(narrowed(inputs));
      expect_each_near(found, evaluate(graph, inputs, state), 1e-4);
      for (const auto& [name, values] : session.state())
        test::expect_near(values, state.at(name), 1e-4, name);
    }
  }
}
inline void expect_like_float64(const Graph& graph) { expect_like_float64(graph, random_inputs(graph)); }

/// The losses of steps, numbered from 1, with inputs_of(step), and the state after the steps.
template <class InputsOf>
void expect_steps_like_float64(const Graph& graph, Session& session, uint32_t steps,
                               const InputsOf& inputs_of) {
  WideArrays state = widened(session.state());
  for (uint32_t step = 1; step <= steps; ++step) {
    const WideArrays inputs = inputs_of(step);
    const double expected = evaluate(graph, inputs, state).at("loss")[0];
    ASSERT_NEAR(session.run(narrowed(inputs)).at("loss")[0], expected, 1e-5 * std::max(1.0, expected))
        << "step " << step;
  }
  expect_each_near(session.state(), state, 1e-4);
}

/// Expects equal costs, except for the recorded passes.
inline void expect_equal(const RunCost& cost, const RunCost& expected) {
  EXPECT_EQ(cost.seconds, expected.seconds);
  EXPECT_EQ(cost.cycles, expected.cycles);
  EXPECT_EQ(cost.balance, expected.balance);
  EXPECT_EQ(cost.bytes, expected.bytes);
  EXPECT_EQ(cost.total_bytes, expected.total_bytes);
  EXPECT_EQ(cost.fullest_tile_bytes, expected.fullest_tile_bytes);
  EXPECT_EQ(cost.tiles, expected.tiles);
  EXPECT_EQ(cost.overflow, expected.overflow);
  ASSERT_EQ(cost.operations.size(), expected.operations.size());
  for (size_t i = 0; i < cost.operations.size(); ++i) {
    EXPECT_EQ(cost.operations[i].seconds, expected.operations[i].seconds) << cost.operations[i].value;
    EXPECT_EQ(cost.operations[i].cycles, expected.operations[i].cycles) << cost.operations[i].value;
  }
  ASSERT_EQ(cost.chips.size(), expected.chips.size());
  for (size_t i = 0; i < cost.chips.size(); ++i) {
    EXPECT_EQ(cost.chips[i].cycles, expected.chips[i].cycles);
    EXPECT_EQ(cost.chips[i].bytes, expected.chips[i].bytes);
  }
  ASSERT_EQ(cost.links.size(), expected.links.size());
  for (size_t i = 0; i < cost.links.size(); ++i) EXPECT_EQ(cost.links[i].bytes, expected.links[i].bytes);
  ASSERT_EQ(cost.placements.size(), expected.placements.size());
  for (size_t i = 0; i < cost.placements.size(); ++i) {
    EXPECT_EQ(cost.placements[i].placement, expected.placements[i].placement);
    EXPECT_EQ(cost.placements[i].seconds, expected.placements[i].seconds);
    EXPECT_EQ(cost.placements[i].overflow, expected.placements[i].overflow);
    EXPECT_EQ(cost.placements[i].chosen, expected.placements[i].chosen);
  }
}

}  // namespace tessera::graph
