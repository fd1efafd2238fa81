// Attention between products that have their activations transposed, and by its decomposition everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "networks.h"

namespace tessera::model {
namespace {

/// Self-attention between layers, whose weights are sparse as bits say: those of q, k, v and of the result.
struct Attending {
  Graph graph;
  WideArrays inputs;

  explicit Attending(uint32_t sparse) {
    constexpr uint32_t kFeatures = 32;
    const Value x = graph.input("x", {3, 21, kFeatures});
    inputs["x"] = random_values(x.type(), -1, 1, 1, 7, 0);
    const auto of = [&](const char* name, Value in, uint32_t bit) {
      return layer(graph, name, in, kFeatures, (sparse >> bit & 1) != 0 ? Layers::sparse : Layers::dense);
    };
    const Value y = attention(of("q", x, 0), of("k", x, 1), of("v", x, 2), {.heads = 4, .right = 0});
    graph.output("y", of("o", y, 3));
  }
};

std::vector<std::string> converted(const Session& session) {
  std::vector<std::string> names;
  const RunCost cost = session.cost();
  for (const ConversionCost& conversion : cost.conversions) names.push_back(conversion.value);
  return names;
}

TEST(Attention, TakesWhatItsNeighboursHaveInAnyLayout) {
  for (uint32_t sparse = 0; sparse < 16; ++sparse) {
    SCOPED_TRACE(testing::Message() << "sparse " << sparse << ", seed 7");
    const Attending attending(sparse);
    const WideArrays state = widened(initial_state(attending.graph));
    WideArrays changed = state;
    const WideArrays expected = evaluate(attending.graph, attending.inputs, changed);
    Session session(attending.graph, Machine::host(2));
    expect_near(session.run(narrowed(attending.inputs)), expected, 1e-5);
    // The input, unless all that take it have it in one layout.
    const bool differ = (sparse & 7) != 0 && (sparse & 7) != 7;
    EXPECT_EQ(converted(session), differ ? std::vector<std::string>{"x"} : std::vector<std::string>{});
  }
}

TEST(Attention, HasGradientsBetweenSparseProducts) {
  Attending attending(15);
  Graph& graph = attending.graph;
  const Value y = graph.value(graph.outputs().at("y")), x = graph.value(graph.inputs()[0]);
  const std::vector<Value> of = {x};
  graph.output("dx", *gradients(sum(square(y)), of)[0]);
  WideArrays state = widened(initial_state(graph));
  const WideArrays expected = evaluate(graph, attending.inputs, state);
  Session session(graph, Machine::host(2));
  expect_near(session.run(narrowed(attending.inputs)), expected, 1e-5);
}

}  // namespace
}  // namespace tessera::model
