#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/model.h>

#include <cmath>

namespace tessera::model {
namespace {

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

}  // namespace
}  // namespace tessera::model
