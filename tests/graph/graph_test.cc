#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/graph.h>

#include <cmath>
#include <string>

#include "support/error_of.h"

namespace tessera::graph {
namespace {

TEST(Graphs, NeedTheInitialValuesThatTheyName) {
  Graph g;
  const Initial none{.kind = Initial::Kind::values};
  const std::string message = "w: its initial values are missing; use Initial::from";
  EXPECT_EQ(test::error_of<UsageError>([&] { g.parameter("w", {2}, none); }), message);
  EXPECT_EQ(test::error_of<UsageError>([&] { g.state("w", {Type::f32, {2}, {}, {}}, none); }), message);
  EXPECT_FALSE(g.contains("w"));
}

TEST(Graph, PrintsAsText) {
  Graph g;
  const Value x = g.input("x", {4, 8});
  const Value w = g.parameter("w", {3, 8}), b = g.parameter("b", {3});
  const Value h = relu(linear(x, w, b));
  g.output("h", h);
  EXPECT_EQ(to_string(g),
            "input x: f32[4, 8]\n"
            "parameter w: f32[3, 8]\n"
            "parameter b: f32[3]\n"
            "%3: f32[4, 3] = linear(x, w, b)\n"
            "%4: f32[4, 3] = relu(%3)\n"
            "output h: %4\n");
}

TEST(Graph, RejectsBadInput) {
  Graph g, other;
  const Value x = g.input("x", {4, 8});
  EXPECT_THROW(g.input("x", {4}), UsageError);
  EXPECT_THROW(relu(Value{}), UsageError);
  EXPECT_THROW(relu(Value{&g, 99}), UsageError);
  EXPECT_THROW(x + Value{}, UsageError);
  EXPECT_THROW(g.input("zero", {4, 0}), UsageError);
  EXPECT_THROW(g.parameter("nan", {4}, Initial::normal(std::nan(""))), UsageError);
  EXPECT_THROW(g.parameter("infinite", {4}, Initial::uniform(HUGE_VAL)), UsageError);
  EXPECT_NO_THROW(g.parameter("data", {1}, Initial::from({NAN})));
  EXPECT_THROW(g.input("many", {1, 1, 1, 1, 1, 1}), UsageError);
  EXPECT_THROW(g.input("huge", {1U << 20, 1U << 20}), UsageError);
  EXPECT_THROW(linear(x, g.parameter("w", {3, 9})), UsageError);
  EXPECT_THROW(x + g.input("y", {5, 8}), UsageError);
  EXPECT_THROW(x + g.input("half", {4, 8}, Type::f16), UsageError);
  EXPECT_THROW(x + other.input("x", {4, 8}), UsageError);
  EXPECT_THROW(slice(x, 1, 3, 9), UsageError);
  EXPECT_THROW(slice(x, 2, 0, 1), UsageError);
  EXPECT_THROW(reshape(x, {5, 8}), UsageError);
  EXPECT_THROW(cross_entropy(x, g.input("labels", {5}, Type::u32)), UsageError);
  EXPECT_THROW(dropout(x, 1.0, g.input("step", {}, Type::u32)), UsageError);
  EXPECT_THROW(g.apply("no such operation", {x}), UsageError);
  EXPECT_THROW(g.apply("relu", {x, x}), UsageError);
  EXPECT_THROW(g.apply("scale", {x}), UsageError);
  EXPECT_THROW(add_training(sum(x)), UsageError);
  EXPECT_THROW(gradients(x, {x}), UsageError);
}

/// Each condition of each operation by itself.
TEST(Graph, RefusesWhatOperationsDoNotTake) {
  Graph g;
  const Value x = g.input("x", {4, 8}), other = g.input("other", {5, 8}), scalar = g.input("scalar", Shape{});
  const Value half = g.input("half", {4, 8}, Type::f16), cube = g.input("cube", {2, 4, 8});
  const Value sparse = g.sparse_parameter("sparse", Pattern{4, 8, 4, {0, 1}, {0}});
  const Value w = g.parameter("w", {3, 8}), step = g.input("step", {}, Type::u32);
  uint32_t inputs = 0;
  const auto input = [&](const Shape& shape, Type type = Type::f32) {
    return g.input("input" + std::to_string(inputs++), shape, type);
  };
  const auto refuses = [](const std::string& why, const auto& operation) {
    EXPECT_TRUE(test::says(test::error_of<UsageError>(operation), why));
  };
  for (const double rate : {-0.1, 1.0, std::nan("")})
    refuses("is not in [0, 1)", [&] { dropout(x, rate, step); });
  refuses("it must be u32[]", [&] { dropout(x, 0.5, scalar); });
  refuses("it must be u32[]", [&] { dropout(x, 0.5, input({2}, Type::u32)); });
  refuses("need u32[4]", [&] { cross_entropy(x, input({3}, Type::u32)); });
  refuses("need u32[4]", [&] { cross_entropy(x, input({4})); });
  refuses("need u32[1]", [&] { cross_entropy(scalar, step); });
  refuses("does not match the weight", [&] { linear(half, w); });
  refuses("does not match the weight", [&] { linear(sparse, w); });
  refuses("does not match the weight", [&] { linear(scalar, g.parameter("column", {3, 1})); });
  refuses("does not match the weight", [&] { linear(x, w, input({4})); });
  refuses("does not match the weight", [&] { linear(x, w, input({3}, Type::f16)); });
  refuses("does not match", [&] { permute_features(x, {0, 1, 2, 3, 4, 5, 6}); });
  refuses("does not match", [&] { permute_features(sparse, {7, 6, 5, 4, 3, 2, 1, 0}); });
  refuses("is not a place of 8", [&] { permute_features(x, {0, 1, 2, 3, 4, 5, 6, 8}); });
  refuses("or there twice", [&] { permute_features(x, {0, 1, 2, 3, 4, 5, 6, 6}); });
  refuses("is not one of the 8", [&] { select_features(x, {0, 8}); });
  refuses("0 places in groups of 1", [&] { select_features(x, {}); });
  refuses("nothing can be taken from", [&] { select_features(scalar, {0}); });
  refuses("nothing can be taken from", [&] { select_features(sparse, {0}); });
  refuses("has no groups of 3", [&] { sum_neighbours(x, 3); });
  refuses("has no groups of 0", [&] { sum_neighbours(x, 0); });
  refuses("has no groups of 1", [&] { g.apply("sum_neighbours", {scalar}, {{"neighbours", int64_t{1}}}); });
  refuses("is not a matrix", [&] { transpose(cube); });
  refuses("slice", [&] { slice(x, 1, 3, 3); });
  refuses("differ in more than dimension 1", [&] { concatenate({x, other}, 1); });
  refuses("differ in more than dimension 0", [&] { concatenate({x, half}, 0); });
  refuses("differ in more than dimension 0", [&] { concatenate({x, cube}, 0); });
  refuses("would fill its zeros", [&] { exp(sparse); });
  refuses("only sums over all", [&] { sum(sparse, {0}); });
  refuses("only sums over all", [&] { max(sparse); });
  const Value like_w = input({3, 8});
  refuses("if and only if there is momentum", [&] {
    g.apply("sgd", {like_w, scalar, w}, {{"momentum", 0.9}});
  });
  refuses("if and only if there is momentum", [&] { g.apply("sgd", {like_w, scalar, w, like_w}); });

  const auto function = std::make_shared<Graph>();
  function->output("y", relu(function->input("x", {4, 8})));
  refuses("a function with 1 inputs is called with 2", [&] { g.call(function, {x, x}); });
  refuses("the call passes", [&] { g.call(function, {other}); });
}

}  // namespace
}  // namespace tessera::graph
