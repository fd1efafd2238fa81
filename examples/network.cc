// A network of three layers, trained on the host, and the same step on a modelled machine before it
// runs.
#include <tessera/estimate.h>
#include <tessera/gradients.h>
#include <tessera/graph.h>

#include <cmath>
#include <cstdio>

#include "arguments.h"

namespace {

using namespace tessera;
using namespace tessera::graph;

constexpr uint32_t kBatch = 64;

Value layer(Graph& g, const char* name, Value x, uint32_t features) {
  const uint32_t inputs = x.shape().back();
  const Value weight = g.parameter(name, {features, inputs}, Initial::normal(1 / std::sqrt(inputs)));
  return linear(x, weight, g.parameter(std::string(name) + ".bias", {features}));
}

Graph network() {
  Graph g;
  const Value x = g.input("x", {kBatch, 784}), labels = g.input("labels", {kBatch}, Type::u32);
  const Value h = relu(layer(g, "first", x, 512));
  const Value logits = layer(g, "third", relu(layer(g, "second", h, 256)), 10);
  const Value loss = cross_entropy(logits, labels);
  g.output("loss", loss);
  add_training(loss, {.optimizer = Sgd{.momentum = 0.9}});
  return g;
}

/// Inputs in one cluster per class.
Arrays batch() {
  std::vector<float> x, labels;
  for (uint32_t i = 0; i < kBatch; ++i) {
    labels.push_back(static_cast<float>(i % 10));
    for (uint32_t j = 0; j < 784; ++j)
      x.push_back(static_cast<float>(std::sin(0.37 * (i % 10 + 1) * (j + 1) + i)));
  }
  return {{"x", x}, {"labels", labels}, {"lr", {0.01F}}};
}

int train() {
  const Graph graph = network();
  Session session(graph, Machine::host());
  float first = 0, last = 0;
  for (int step = 0; step < 50; ++step) {
    last = session.run(batch()).at("loss")[0];
    if (step == 0) first = last;
  }
  std::printf("loss %.3f -> %.3f\n", static_cast<double>(first), static_cast<double>(last));

  const RunCost cost = estimate(graph, Machine::find("gc200"));
  std::printf("on a GC200 a step would take %.1f us; its fullest tile has %llu of %llu bytes\n",
              1e6 * cost.seconds, static_cast<unsigned long long>(cost.fullest_tile_bytes),
              static_cast<unsigned long long>(cost.tile_bytes));
  return last < 0.5F * first ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run({.program = "example_network"}, argc, argv,
                      [](const example::Arguments&) { return train(); });
}
