// Pooling, normalisation and interpolation of images; permutations that are removed, and factors that are
// folded into weights.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/convolution.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/inference.h>
#include <tessera/vision.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "networks.h"
#include "support/error_of.h"
#include "support/random_choices.h"

namespace tessera::graph {
namespace {

using test::error_of;
using test::says;

void refuses(const std::string& message, const std::function<void()>& make) {
  const std::string error = error_of<UsageError>(make);
  EXPECT_TRUE(says(error, message));
}

TEST(Pooling, GivesTheGradientOfEqualElementsToTheFirst) {
  Graph g;
  const Value x = g.parameter("x", {1, 2, 4, 1});
  g.output("dx", *gradients(sum(max_pool(x, {.window = {2}, .stride = {1}})), {x})[0]);
  const WideArrays expected = {{"dx", {1, 1, 1, 0, 0, 0, 0, 0}}};
  for (const char* machine : {"host", "bow"}) {
    Session session(g, Machine::find(machine, 2));
    expect_near(session.run(Arrays()), expected, 0);
  }
}

/// Also with more elements than a type counts without gaps.
TEST(Pooling, GivesTheGradientToTheFirstOfManyEqualElements) {
  for (const auto& [type, count] :
       {std::pair(Type::f16, 9U), std::pair(Type::f16, 2100U), std::pair(Type::bf16, 300U)}) {
    SCOPED_TRACE(fmt::format("{} of {}", count, name_of(type)));
    Graph g;
    const Value x = g.parameter("x", {1, count, 1}, {}, type);
    g.output("dx", *gradients(sum(adaptive_max_pool(x, {1})), {x})[0]);
    WideArrays expected = {{"dx", std::vector<double>(count)}};
    expected["dx"][0] = 1;
    expect_near(Session(g, Machine::find("bow")).run(Arrays()), expected, 0);
  }
}

TEST(Pooling, GivesTheGradientOfNaNToItself) {
  Graph g;
  const Value x = g.input("x", {1, 3, 1});
  g.output("dx", *gradients(sum(max_pool(x, {.window = {2}, .stride = {1}})), {x})[0]);
  const WideArrays expected = {{"dx", {0, 2, 0}}};
  for (const char* machine : {"host", "bow"}) {
    Session session(g, Machine::find(machine, 2));
    expect_near(session.run({{"x", {1, std::numeric_limits<float>::quiet_NaN(), 3}}}), expected, 0);
  }
}

TEST(Pooling, GivesNaNWhereAWindowHasIt) {
  Graph g;
  const Value x = g.input("x", {1, 5, 2});
  g.output("y", max_pool(x, {.window = {2}, .stride = {1}}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y =
      Session(g, Machine::host(1)).run({{"x", {1, 5, nan, 4, 3, 3, 4, 2, 5, 1}}}).at("y");
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i == 0 || i == 2) << i;
  EXPECT_EQ(y[1], 5);
  EXPECT_EQ(y[4], 4);
}

TEST(Pooling, LeavesOutWhatIsBetweenDilatedElements) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  Graph g;
  const Value x = g.input("x", {1, 5, 2}), flipped = g.input("channels first", {1, 2, 5});
  const Pooling of{.window = {2}, .stride = {1}, .dilation = {2}};
  g.output("y", average_pool(x, of));
  g.output("y of channels first", average_pool(permute(flipped, {0, 2, 1}), of));
  const Arrays inputs = {{"x", {1, 2, infinity, -infinity, 3, 4, nan, infinity, 5, 6}},
                         {"channels first", {1, infinity, 3, nan, 5, 2, -infinity, 4, infinity, 6}}};
  const std::vector<float> expected = {2, 3, nan, nan, 4, 5};
  for (const char* machine : {"host", "bow"})
    for (const auto& [name, y] : Session(g, Machine::find(machine, 2)).run(inputs))
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(std::isnan(expected[i]) ? std::isnan(y.at(i)) : y.at(i) == expected[i])
            << machine << ", " << name << ", element " << i << ": " << y.at(i);
}

TEST(Pooling, TakesWindowsOfWhichAllLieInPadding) {
  Graph g;
  const Value x = g.input("x", {1, 1, 2});
  const Pooling of{.window = {2}, .stride = {1}, .before = {2}, .after = {2}, .dilation = {3}};
  const Value most = max_pool(x, of), mean = average_pool(x, of);
  g.output("most", most);
  g.output("mean", mean);
  g.output("slope of most", *gradients(sum(most), {x})[0]);
  g.output("slope of mean", *gradients(sum(mean), {x})[0]);
  const Arrays inputs = {{"x", {1, std::numeric_limits<float>::quiet_NaN()}}};
  for (const char* machine : {"host", "bow"}) {
    SCOPED_TRACE(machine);
    const Arrays found = Session(g, Machine::find(machine, 2)).run(inputs);
    EXPECT_EQ(found.at("most"), std::vector<float>(4, -std::numeric_limits<float>::infinity()));
    EXPECT_EQ(found.at("mean"), std::vector<float>(4));
    EXPECT_EQ(found.at("slope of most"), std::vector<float>(2));
    EXPECT_EQ(found.at("slope of mean"), std::vector<float>(2));
  }
}

/// Between sparse products activations are transposed, but single elements are not.
TEST(Pooling, TakesAndGivesSingleElementsBetweenSparseProducts) {
  const auto sparse_layer = [](Graph& g, const char* name, Value x, uint32_t outputs) {
    const Pattern pattern =
        sparse::generate_pattern({PatternKind::random, outputs, x.shape().back(), 0.5, 1, 3});
    return linear(x, g.sparse_parameter(name, pattern, Initial::normal(1)));
  };
  const Pooling around{.window = {2}, .stride = {1}, .before = {1}, .after = {1}}, all{.window = {3, 4}};
  const Convolution padded{.kernel = {3, 3}, .padding = {1, 1}}, first{.kernel = {1, 1}, .stride = {5, 5}};
  const Shape sizes = {3, 4};
  const std::vector<std::pair<Shape, std::function<Value(Value)>>> cases = {
      {{1, 1, 1, 4}, [&](Value x) { return max_pool(x, around); }},
      {{1, 1, 1, 4}, [&](Value x) { return average_pool(x, around); }},
      {{1, 3, 4, 4}, [&](Value x) { return max_pool(x, all); }},
      {{1, 3, 4, 4}, [&](Value x) { return average_pool(x, all); }},
      {{1, 1, 1, 4}, [&](Value x) { return patches(x, padded); }},
      {{1, 3, 4, 4}, [&](Value x) { return patches(x, first); }},
      {{1, 1, 1, 4}, [&](Value x) { return fold(x, first, sizes); }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    Graph g;
    const Value x = g.parameter("x", cases[i].first, Initial::normal(1));
    const Value y = sparse_layer(g, "second", cases[i].second(sparse_layer(g, "first", x, 1)), 8);
    g.output("y", y);
    g.output("dx", *gradients(sum(square(y)), {x})[0]);
    WideArrays state = widened(initial_state(g));
    Session session(g, Machine::host(2));
    expect_near(session.run(Arrays()), evaluate(g, {}, state), 1e-5, 1);
  }
}

TEST(Pooling, RoundsTheNumberOfWindowsAsPyTorchDoes) {
  Graph g;
  const Value x = g.input("x", {1, 7, 8, 3});
  const auto sizes = [&](const Pooling& of) {
    const Shape shape = max_pool(x, of).shape();
    return Shape{shape[1], shape[2]};
  };
  EXPECT_EQ(sizes({.window = {2}}), (Shape{3, 4}));
  EXPECT_EQ(sizes({.window = {2}, .ceil = true}), (Shape{4, 4}));
  // A last window would begin in the padding.
  EXPECT_EQ(sizes({.window = {2}, .stride = {3}, .before = {1}, .after = {1}, .ceil = true}), (Shape{3, 3}));
  EXPECT_EQ(sizes({.window = {3, 2}, .stride = {2, 1}, .dilation = {2, 3}}), (Shape{2, 5}));
}

TEST(Pooling, RefusesWindowsThatFitNowhere) {
  Graph g;
  const Value x = g.input("x", {2, 5, 6, 3}), flat = g.input("flat", {5, 6});
  refuses("must be [N, length, channels] or [N, height, width, channels]",
          [&] { max_pool(flat, {.window = {2}}); });
  refuses("do not fit 5 with a padding of 0 and 0", [&] { average_pool(x, {.window = {6}}); });
  refuses("less than the 2 elements", [&] { max_pool(x, {.window = {2}, .before = {2}}); });
  refuses("must be at least 1", [&] { max_pool(x, {.window = {0}}); });
  refuses("do not fit 2 dimensions", [&] { max_pool(x, {.window = {2, 2, 2}}); });
  refuses("sizes of [0, 2]", [&] { adaptive_max_pool(x, {0, 2}); });
  refuses("not 2 equal groups", [&] { group_norm(x, 2); });
  refuses("the weight is f32[5, 6]; it must have the 3 channels", [&] { batch_norm_of_batch(x, flat); });
  refuses("sizes of [3] for 2 dimensions", [&] {
    x.owner().apply("interpolate", {x}, {{"sizes", std::vector<int64_t>{3}}});
  });
  refuses("the divisor is 0", [&] { average_pool(x, {.window = {2}}, true, 0); });
  refuses("a factor of -2", [&] { interpolate(x, {.sizes = {9}, .factors = {-2}}); });
  refuses("epsilon is -1", [&] { batch_norm_of_batch(x, {}, {}, -1); });
  refuses("there are 3 factors", [&] { interpolate(x, {.sizes = {9}, .factors = {2, 2, 2}}); });
}

TEST(Normalisation, TrainsWithTheStatisticsOfTheBatch) {
  Graph g;
  const Value x = g.input("x", {4, 3, 2, 5}), weight = g.parameter("weight", {5}, Initial::constant(1.5)),
              bias = g.parameter("bias", {5});
  const BatchNorm norm = batch_norm_of_batch(x, weight, bias);
  const Value running = g.state("running", {Type::f32, {5}, {}, {}});
  g.assign(running, running * 0.9 + norm.variance * 0.1);
  g.output("y", norm.y);
  g.output("grouped", group_norm(x, 5, weight, bias));
  add_training(mean(square(norm.y - x)), {});
  WideArrays inputs = random_inputs(g);
  inputs["lr"] = {0.1};
  expect_like_float64(g, inputs);
}

/// Channels first around what has them last.
Value first(Value x) { return permute(x, {0, 3, 1, 2}); }
Value last(Value x) { return permute(x, {0, 2, 3, 1}); }

uint64_t permutations_of(const Graph& g) {
  return static_cast<uint64_t>(std::ranges::count(g.nodes(), std::string_view("permute"),
                                                  [](const Node& node) { return node.operation->name; }));
}

/// As importers write a network of PyTorch: channels first everywhere but in products and pooling.
Graph network_of_channels_first() {
  Graph g;
  const auto product = [&](const std::string& name, Value x, uint32_t outputs) {
    return first(layer(g, name, last(x), outputs, Layers::dense));
  };
  const Value x = g.input("x", {2, 3, 6, 6});
  const Value stem = relu(product("stem", x, 8));
  const Value pooled = first(max_pool(last(stem), {.window = {2}}));
  const Value scale = g.parameter("scale", {8, 1, 1}, Initial::normal(1));
  const Value shift = g.constant("", {1, 8, 3, 3}, std::vector<float>(72, 0.25F));
  Value y = relu(product("left", pooled, 8) * scale + shift + pooled);
  // Squeeze and excitation, on one number for each channel.
  const Value squeezed = first(adaptive_average_pool(last(y), {1}));
  y = y * sigmoid(product("excite", squeezed, 8));
  // Channels are divided, shuffled and joined.
  const std::vector<Value> parts = split(y, {4, 4}, 1);
  const Value joined = concatenate({parts[0], product("part", parts[1], 4)}, 1);
  const Value shuffled = reshape(permute(reshape(joined, {2, 2, 4, 3, 3}), {0, 2, 1, 3, 4}), {2, 8, 3, 3});
  const Value features =
      reshape(first(adaptive_average_pool(last(product("head", shuffled, 5)), {1})), {2, 5});
  g.output("y", layer(g, "classes", features, 4, Layers::dense));
  return g;
}

TEST(Permutations, MeetAndCancelInANetworkOfChannelsFirst) {
  const Graph g = network_of_channels_first();
  Graph moved = g;
  EXPECT_GT(move_permutations(moved), 5U);
  remove_unused(moved);
  verify(moved);
  EXPECT_GT(permutations_of(g), 12U);
  // Of the input, and the shuffled channels, which move.
  EXPECT_EQ(permutations_of(moved), 2U) << to_string(moved);
  const WideArrays inputs = random_inputs(g);
  WideArrays state = widened(initial_state(g, 4));
  expect_near(evaluate(moved, inputs, state), evaluate(g, inputs, state), 1e-12);
  expect_like_float64(g);
}

TEST(Permutations, CancelInGradientsAsWell) {
  Graph g = network_of_channels_first();
  add_training(mean(square(g.find("classes.bias") + g.value(g.outputs().at("y")))));
  Graph moved = g;
  move_permutations(moved);
  remove_unused(moved);
  // Of the input, of the channels forward and back, and before sums over images.
  EXPECT_LE(permutations_of(moved), 5U) << to_string(moved);
  WideArrays inputs = random_inputs(g);
  inputs["lr"] = {0.1};
  expect_like_float64(g, inputs);
}

/// Values of one size in many shapes, permuted and combined.
class RandomPermutations {
 public:
  explicit RandomPermutations(uint64_t seed) : random_(seed) {
    for (const char* name : {"a", "b"}) values_.push_back(graph.input(name, {2, 3, 4, 5}));
    for (int i = 0; i < 14; ++i) add();
    for (size_t i = 0; i < 2; ++i) graph.output(fmt::format("y{}", i), values_[values_.size() - 1 - i]);
    graph.output("sum", sum(values_.back()));
  }

  Graph graph;

 private:
  Value any() {
    return values_[values_.size() - 1 -
                   std::min(random_.below(5), static_cast<uint32_t>(values_.size()) - 1)];
  }

  void add() {
    const Value x = any();
    const Shape& shape = x.shape();
    const auto dimension = [&] { return random_.below(static_cast<uint32_t>(shape.size())); };
    switch (random_.below(9)) {
      case 0:
      case 1:
      case 2: {
        std::vector<int> order(shape.size());
        std::iota(order.begin(), order.end(), 0);
        for (size_t i = order.size(); i-- > 1;)
          std::swap(order[i], order[random_.below(static_cast<uint32_t>(i) + 1)]);
        return values_.push_back(permute(x, order));
      }
      case 3: return values_.push_back(relu(x + 0.5));
      case 4: {
        for (size_t i = values_.size(); i-- > 0;)
          if (values_[i].id != x.id && values_[i].shape() == shape) return values_.push_back(x - values_[i]);
        return;
      }
      case 5: {
        Shape other = shape;
        for (uint32_t& size : other) size = random_.coin() ? 1 : size;
        std::vector<float> numbers(TensorType{Type::f32, other, {}, {}}.elements());
        for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 7) - 3;
        return values_.push_back(x * graph.constant("", other, numbers));
      }
      case 6: {
        const uint32_t d = dimension();
        if (shape[d] < 2) return;
        const std::vector<Value> parts = split(x, {1, shape[d] - 1}, d);
        return values_.push_back(concatenate({parts[1], parts[0]}, d));
      }
      case 7: {
        const uint32_t d = dimension();
        if (shape.size() < 2 || d + 1 == shape.size()) return;
        Shape joined = shape;
        joined[d] *= joined[d + 1];
        joined.erase(joined.begin() + d + 1);
        return values_.push_back(reshape(x, joined));
      }
      default: {
        const uint32_t d = dimension();
        if (shape.size() == kMaxDimensions || shape[d] % 2 != 0) return;
        Shape divided = shape;
        divided[d] /= 2;
        divided.insert(divided.begin() + d, 2);
        return values_.push_back(reshape(x, divided));
      }
    }
  }

  test::Random random_;
  std::vector<Value> values_;
};

TEST(Permutations, LeaveWhatRandomGraphsCompute) {
  uint32_t changed = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomPermutations random(seed);
    Graph moved = random.graph;
    changed += move_permutations(moved) > 0 ? 1 : 0;
    verify(moved);
    const WideArrays inputs = random_inputs(random.graph);
    WideArrays state;
    expect_near(evaluate(moved, inputs, state), evaluate(random.graph, inputs, state), 1e-12, 1);
    if (seed % 100 == 0)
      expect_near(Session(random.graph, Machine::host(2)).run(narrowed(inputs)),
                  evaluate(random.graph, inputs, state), 1e-5, 1);
  }
  EXPECT_GT(changed, 200U);
}

TEST(Folding, MakesBatchNormalisationPartOfAProduct) {
  for (const bool is_sparse : {false, true}) {
    Graph g;
    const Value x = g.input("x", {2, 16, 3, 3});
    std::vector<float> values(32 * 16);
    for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? 0 : static_cast<float>(i % 11) - 5;
    const Value dense = is_sparse ? Value() : g.parameter("conv.weight", {32, 16}, Initial::from(values));
    Pattern pattern{32, 16, 4, {0}, {}};
    for (uint32_t row = 0; row < 8; ++row) {
      pattern.col_indices.push_back(row % 4);
      pattern.crow_indices.push_back(row + 1);
    }
    std::vector<float> blocks(8 * 16);
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<float>(i % 13) - 6;
    const Value weight =
        is_sparse ? g.sparse_parameter("conv.weight", pattern, Initial::from(blocks)) : dense;
    const auto vector = [&](const char* name, float from) {
      std::vector<float> numbers(32);
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = from + 0.1F * static_cast<float>(i);
      return g.parameter(name, {32}, Initial::from(numbers));
    };
    const Value y = first(linear(last(x), weight));
    const Value normal = first(batch_norm(last(y), vector("bn.mean", -1), vector("bn.variance", 0.5F),
                                          vector("bn.weight", 1), vector("bn.bias", 0)));
    g.output("y", relu(normal * 2 + 1));
    const FoldedGraph found = folded(g);
    verify(found.graph);
    std::vector<std::string_view> names;
    for (const Node& node : found.graph.nodes()) names.push_back(node.operation->name);
    EXPECT_EQ(names, (std::vector<std::string_view>{"permute", "linear", "relu", "permute"}))
        << to_string(found.graph);
    EXPECT_EQ(found.changed, (std::set<std::string>{"bn.bias", "bn.mean", "bn.variance", "bn.weight",
                                                    "conv.bias", "conv.weight"}));
    const std::vector<float> folded_values = initial_state(found.graph).at("conv.weight");
    for (size_t i = 0; !is_sparse && i < values.size(); ++i) EXPECT_EQ(folded_values[i] == 0, values[i] == 0);
    const WideArrays inputs = random_inputs(g);
    WideArrays state = widened(initial_state(g)), folded_state = widened(initial_state(found.graph));
    expect_near(evaluate(found.graph, inputs, folded_state), evaluate(g, inputs, state), 1e-5);
  }
}

/// Constants without names have numbers in both graphs.
TEST(Folding, KeepsConstantsThatOthersNeed) {
  Graph g;
  const Value x = g.input("x", {3, 4}), left_out = g.constant("", {4}, {1, 2, 3, 4}) + 1;
  g.output("y", x * left_out + g.constant("", {3, 4}, std::vector<float>(12, 2)));
  g.output("constant", left_out);
  const FoldedGraph found = folded(g);
  EXPECT_EQ(found.graph.nodes().size(), 2U);
  const WideArrays inputs = random_inputs(g);
  WideArrays state;
  expect_near(evaluate(found.graph, inputs, state), evaluate(g, inputs, state), 1e-12);
}

TEST(Folding, NamesBiasesThatHaveNone) {
  Graph g;
  const Value x = g.input("x", {3, 4}),
              w = g.parameter("w", {4, 4}, Initial::from(std::vector<float>(16, 2)));
  const Value bias = g.constant("", {4}, {1, 2, 3, 4}), factor = g.constant("", {4}, {4, 3, 2, 1});
  g.output("y", relu(linear(relu(x), w, bias) * factor));
  const FoldedGraph found = folded(g);
  EXPECT_EQ(found.changed, (std::set<std::string>{"w", "w bias"}));
  EXPECT_EQ(found.graph.nodes().size(), 3U);
  const WideArrays inputs = random_inputs(g);
  WideArrays state = widened(initial_state(g)), folded_state = widened(initial_state(found.graph));
  expect_near(evaluate(found.graph, inputs, folded_state), evaluate(g, inputs, state), 1e-5);
}

/// The number of replicas may be set afterwards.
TEST(Folding, LeavesSumsOverReplicas) {
  Graph g;
  g.output("variance", batch_norm_of_batch(g.input("x", {4, 3}), {}, {}, 1e-5, 0).variance);
  Graph found = folded(g).graph;
  g.replicate(2);
  found.replicate(2);
  const WideArrays inputs = random_inputs(g);
  WideArrays state;
  expect_near(evaluate(found, inputs, state), evaluate(g, inputs, state), 1e-12);
}

TEST(Folding, LeavesGraphsThatChange) {
  Graph g;
  const Value x = g.input("x", {3, 4}),
              w = g.parameter("w", {4, 4}, Initial::from(std::vector<float>(16, 2)));
  const Value y = linear(x, w) * 2;
  g.output("y", y);
  EXPECT_EQ(folded(g).changed, (std::set<std::string>{"w", "w bias"}));
  g.output("product", linear(x, w));
  EXPECT_TRUE(folded(g).changed.empty()) << "the weight has another use";
  add_training(mean(square(y)));
  EXPECT_EQ(to_string(folded(g).graph), to_string(g));
}

}  // namespace
}  // namespace tessera::graph
