// Layer normalisation: fused on hosts, and by its decomposition everywhere.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <cmath>

#include "graph/transforms/transforms.h"
#include "networks.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

using test::error_of;
using test::says;

// So large that a single feature, whose variance is 0, has no large gradient.
constexpr double kEpsilon = 0.01;

/// Rows with a mean, scales and shifts: the results, and the gradients of Σ y · weights.
struct Normalised {
  Graph graph;
  WideArrays inputs;

  Normalised(Shape shape, Type type, bool behind_sparse_product = false) {
    const uint32_t features = shape.back();
    const Value x = input("x", shape, type, -1, 3), weight = input("weight", {features}, type, 0.5, 2);
    const Value bias = input("bias", {features}, type, -1, 1), slope = input("slope", shape, type, -1, 1);
    const Value in = behind_sparse_product ? layer(graph, "before", x, features, Layers::sparse) : x;
    const Value y = layer_norm(in, weight, bias, kEpsilon);
    graph.output("y", behind_sparse_product ? layer(graph, "after", y, features, Layers::sparse) : y);
    const Value loss = sum(cast(y * slope, Type::f32));
    const std::vector<Value> of = {x, weight, bias};
    const std::vector<std::optional<Value>> found = gradients(loss, of);
    for (size_t i = 0; i < of.size(); ++i) graph.output("of " + graph.info(of[i].id).name, *found[i]);
  }

  Graph decomposed() const {
    Graph parts = graph;
    decompose(parts, [](const Node& node) { return node.operation->decompose != nullptr; });
    return parts;
  }

 private:
  Value input(const std::string& name, const Shape& shape, Type type, double low, double high) {
    const Value value = graph.input(name, shape, type);
    inputs[name] = random_values(value.type(), low, high, 1, 7, static_cast<uint32_t>(inputs.size()));
    return value;
  }
};

bool has_operation(const Session& session, std::string_view name) {
  const RunCost cost = session.cost();
  return std::ranges::any_of(cost.operations, [&](const auto& each) { return each.operation == name; });
}

/// Sparse products have transposed results; the caller has the input and its gradient as rows.
TEST(LayerNorm, OfWhatLiesTransposedIsBoundAsRows) {
  for (const Shape& shape : {Shape{2, 65, 96}, {3, 24}, {300, 40}}) {
    SCOPED_TRACE(to_string(TensorType{Type::f32, shape, {}, {}}));
    Graph graph;
    const Value x = graph.input("x", shape);
    const Value before = layer(graph, "before", x, shape.back(), Layers::sparse);
    const Value weight = graph.parameter("weight", {shape.back()}, Initial::normal(1));
    const Value y = layer_norm(before, weight, {}, kEpsilon);
    graph.output("y", y);
    graph.output("dx", *gradients(sum(square(y)), std::vector<Value>{before})[0]);
    const WideArrays inputs = {{"x", random_values(x.type(), -1, 1, 1, 3, 0)}};
    WideArrays state = widened(initial_state(graph));
    const WideArrays expected = evaluate(graph, inputs, state);
    for (const uint32_t threads : {1U, 2U})
      expect_near(Session(graph, Machine::host(threads)).run(narrowed(inputs)), expected, 1e-4);
  }
}

TEST(LayerNorm, OfLargeMatricesIsItsDecomposition) {
  struct Size {
    Shape shape;
    Type type = Type::f32;
    bool behind_sparse_product = false;
  };
  // With features that fill several vectors, and do not; that are one; with samples in each.
  for (const Size& size : {Size{{37, 1000}},
                           {{3, 8192}},
                           {{1030, 70}},
                           {{2, 65, 768}},
                           {{1, 1}},
                           {{100, 1}},
                           {{131, 515}, Type::f16},
                           {{131, 515}, Type::bf16},
                           {{200, 256}, Type::f32, true}}) {
    SCOPED_TRACE(to_string(TensorType{size.type, size.shape, {}, {}}));
    const Normalised normalised(size.shape, size.type, size.behind_sparse_product);
    WideArrays state = widened(initial_state(normalised.graph));
    const WideArrays expected = evaluate(normalised.graph, normalised.inputs, state);
    const Arrays inputs = narrowed(normalised.inputs);
    // A single feature has no variance: gradients are differences of terms of up to 1/√ε.
    const double terms = size.shape.back() == 1 ? 1 / std::sqrt(1e-5) : 1;
    const double tolerance = 16 * epsilon_of(size.type) * terms;
    for (const uint32_t threads : {1, 2}) {
      Session fused(normalised.graph, Machine::host(threads)),
          parts(normalised.decomposed(), Machine::host(threads));
      EXPECT_TRUE(has_operation(fused, "layer_norm") && has_operation(fused, "layer_norm_gradients"));
      EXPECT_FALSE(has_operation(parts, "layer_norm") || has_operation(parts, "layer_norm_gradients"));
      expect_near(fused.run(inputs), expected, tolerance, 1);
      expect_near(parts.run(inputs), expected, tolerance, 1);
    }
  }
}

TEST(LayerNorm, RunsOnWideMachinesOfTiles) {
  const Normalised normalised({24, 1000}, Type::f32);
  WideArrays state;
  const WideArrays expected = evaluate(normalised.graph, normalised.inputs, state);
  for (const Machine& machine :
       {Machine::find("bow"), Machine::find("gc200", 100), Machine::find("m2000").with("tiles", 64)}) {
    SCOPED_TRACE(machine.name());
    Session session(normalised.graph, machine);
    ASSERT_TRUE(session.fits());
    EXPECT_FALSE(has_operation(session, "layer_norm"));
    expect_near(session.run(narrowed(normalised.inputs)), expected, 16 * epsilon_of(Type::f32), 1);
  }
}

TEST(LayerNorm, CostsAreKnownBeforeItRuns) {
  const Normalised normalised({64, 96}, Type::f16);
  for (const Machine& machine : {Machine::host(2), Machine::find("bow", 16)}) {
    Session session(normalised.graph, machine);
    const RunCost cost = session.cost();
    EXPECT_GT(cost.seconds, 0);
    double parts = 0;
    for (const OperationCost& operation : cost.operations) parts += operation.seconds;
    EXPECT_GT(parts, 0.5 * cost.seconds);
    EXPECT_LE(parts, 1.001 * cost.seconds);
    if (machine.is_host()) continue;
    std::vector<std::vector<std::byte>> bytes;
    std::vector<Tensor> tensors;
    for (const ArrayType& array : session.arrays()) {
      bytes.emplace_back(array.type.bytes());
      tensors.push_back({array.name, bytes.back().data()});
    }
    session.run(tensors);
    EXPECT_DOUBLE_EQ(session.last_seconds(), cost.seconds);
  }
}

TEST(LayerNorm, OfWhatIsNoNumberIsNone) {
  constexpr uint32_t kFeatures = 70;
  Normalised normalised({9, kFeatures}, Type::f32);
  std::vector<double>& x = normalised.inputs.at("x");
  x[kFeatures + 3] = NAN;
  x[3 * kFeatures + 69] = INFINITY;
  x[5 * kFeatures] = -INFINITY;
  std::fill_n(x.begin() + 7 * kFeatures, kFeatures, 2.5);  // without a variance
  normalised.inputs.at("weight")[10] = INFINITY;
  normalised.inputs.at("bias")[11] = NAN;
  WideArrays state;
  const WideArrays expected = evaluate(normalised.graph, normalised.inputs, state);
  for (const Machine& machine : {Machine::host(2), Machine::find("bow", 8)}) {
    const Arrays found = Session(normalised.graph, machine).run(narrowed(normalised.inputs));
    for (const auto& [name, values] : expected)
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(std::isnan(found.at(name)[i]), std::isnan(values[i])) << name << ", element " << i;
        EXPECT_EQ(std::isinf(found.at(name)[i]), std::isinf(values[i])) << name << ", element " << i;
      }
    for (const uint32_t row : {1U, 3U, 5U})
      for (uint32_t i = 0; i < kFeatures; ++i) EXPECT_TRUE(std::isnan(found.at("y")[row * kFeatures + i]));
    EXPECT_TRUE(std::isfinite(found.at("y")[0]) && std::isfinite(found.at("y")[7 * kFeatures]));
  }
}

TEST(LayerNorm, RefusesWhatItCannotBe) {
  Graph g;
  const Value x = g.input("x", {3, 8}), weight = g.input("weight", {8}), other = g.input("other", {7});
  const Value scalar = g.input("scalar", Shape{}), labels = g.input("labels", {3, 8}, Type::u32);
  const Value half = g.input("half", {8}, Type::f16);
  const auto refuses = [](std::string_view why, const auto& operation) {
    EXPECT_TRUE(says(error_of<UsageError>(operation), std::string(why)));
  };
  for (const double epsilon : {-1e-5, std::nan(""), -HUGE_VAL, HUGE_VAL, 1e300})
    refuses("it must be a finite FP32 number of at least 0", [&] { layer_norm(x, weight, {}, epsilon); });
  refuses("layer_norm: epsilon is -1;", [&] { layer_norm(x, {}, {}, -1); });
  refuses("the weight is f32[7]; it must be f32[8]", [&] { layer_norm(x, other); });
  refuses("the weight is f16[8]; it must be f32[8]", [&] { layer_norm(x, half); });
  refuses("the bias is f32[7]; it must be f32[8]", [&] { layer_norm(x, weight, other); });
  refuses("it must be [..., features]", [&] { layer_norm(scalar); });
  refuses("layer_norm", [&] { layer_norm(labels); });
  layer_norm(x, weight, {}, 0);
}

}  // namespace
}  // namespace tessera::graph
