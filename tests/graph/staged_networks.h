// Networks whose layers lie on stages, for tests of pipelines.
#pragma once

#include <fmt/format.h>
#include <tessera/gradients.h>
#include <tessera/graph.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compare.h"

namespace tessera::graph::staged {

/// A layer with a residual connection and dropout.
inline std::shared_ptr<const Graph> layer(uint32_t rows, uint32_t width) {
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {rows, width});
  const Value w = body->input("w", {width, width}), b = body->input("b", {width});
  const Value scale = body->input("scale", {width});
  const Value number = body->input("number", {}, Type::u32);
  body->output("y", x + dropout(gelu(linear(x, w, b)) * scale, 0.25, number, 7));
  return body;
}

/// Layers, the same number on each stage. All of them also take the result of the first stage, and the first
/// and the last stage share a weight.
inline Graph network(uint32_t stages, uint32_t per_stage, const TrainingOptions& options, uint32_t rows = 6,
                     uint32_t width = 16) {
  Graph g;
  const Value number = g.input("number", {}, Type::u32);
  const Value first = g.parameter("first", {width, 8}, Initial::normal(0.3));
  const Value begin = linear(g.input("x", {rows, 8}), first);
  const Value scale = mean(begin, {0}) + 1;
  Value h = begin;
  const auto function = layer(rows, width);
  for (uint32_t i = 0; i < stages * per_stage; ++i)
    h = g.call(function,
               {h, g.parameter(fmt::format("w{}", i), {width, width}, Initial::normal(0.2)),
                g.parameter(fmt::format("b{}", i), {width}, Initial::normal(0.1)), scale, number},
               {.stage = i / per_stage})[0];
  const Value y = linear(h + begin, permute(first, {1, 0}));
  const Value loss = cross_entropy(y, g.input("labels", {rows}, Type::u32));
  g.output("loss", loss);
  add_training(loss, options);
  return g;
}

/// Single layers, one on each stage, of equal work. All take a row of another input and, on request, another
/// result of the first stage.
inline Graph equal_stages(uint32_t stages, uint32_t micro_batches, const Pipeline& pipeline,
                          bool recompute = false, TrainingOptions options = {}, bool hand_on = false) {
  constexpr uint32_t kRows = 128, kWidth = 192;
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {kRows, kWidth}), w = body->input("w", {kWidth, kWidth}),
              bias = body->input("bias", {1, kWidth});
  body->output("y", relu(linear(gelu(linear(x, w)), w) + bias));
  Graph g;
  Value h = g.input("x", {kRows, kWidth});
  Value bias_of_all = g.input("bias", {1, kWidth}) * 0.5;
  if (hand_on) {
    const Value bounds = g.parameter("bounds", {kWidth}, Initial::normal(0.1));
    bias_of_all = where(less(bias_of_all, bounds), bias_of_all * 2, bias_of_all);
    h = h + bounds;
  }
  for (uint32_t i = 0; i < stages; ++i)
    h = g.call(body,
               {h, g.parameter(fmt::format("w{}", i), {kWidth, kWidth}, Initial::normal(0.1)), bias_of_all},
               {.stage = i, .recompute = recompute})[0];
  const Value loss = sum(h);
  g.output("loss", loss);
  options.micro_batches = micro_batches;
  options.pipeline = pipeline;
  add_training(loss, options);
  return g;
}

/// One or more for each stage, with few tiles.
inline Machine chips(uint32_t count) { return Machine::find("m2000").with("chips", count).with("tiles", 6); }

inline Arrays inputs_of(const Graph& graph, uint32_t step) {
  Arrays arrays = narrowed(random_inputs(graph));
  arrays["lr"] = {0.05F};
  if (graph.contains("step")) arrays["step"] = {static_cast<float>(step)};
  return arrays;
}

/// The results of two steps of training, and the state after them.
struct Steps {
  std::vector<Arrays> results;
  Arrays state;
};

inline Steps steps_of(const Graph& graph, const Machine& machine) {
  Session session(graph, machine, {.seed = 5});
  Steps steps;
  for (uint32_t step = 1; step <= 2; ++step) steps.results.push_back(session.run(inputs_of(graph, step)));
  steps.state = session.state();
  return steps;
}

}  // namespace tessera::graph::staged
