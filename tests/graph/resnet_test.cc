// Residual networks: sizes, names, and statistics in training and evaluation.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/resnet.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "compare.h"
#include "networks.h"
#include "sparse/generate.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/numbers.h"

namespace tessera::graph {
namespace {

/// Two stages with a block each, for images of 8².
ResnetConfig small_config() {
  ResnetConfig config = ResnetConfig::of_depth(8);
  config.blocks = {1, 1};
  config.width = 8;
  config.classes = 5;
  return config;
}

/// The elements of parameters with a gradient.
uint64_t learned(const Graph& graph) {
  uint64_t count = 0;
  for (const ValueInfo& info : graph.values())
    if (info.kind == Kind::parameter && info.name.find(".running_") == std::string::npos)
      count += info.type.elements();
  return count;
}

TEST(Resnet, HasThePublishedNumbersOfParameters) {
  const std::map<uint32_t, uint64_t> published = {{18, 11'689'512}, {34, 21'797'672}, {50, 25'557'032},
                                                  {20, 269'722},    {32, 464'154},    {56, 853'018}};
  for (const auto& [depth, count] : published) {
    const ResnetConfig config = ResnetConfig::of_depth(depth);
    const uint32_t side = config.is_for_small_images ? 32 : 224;
    Graph g;
    const Resnet net = resnet(g, g.input("images", {2, side, side, 3}), config);
    EXPECT_EQ(learned(g), count) << depth;
    EXPECT_EQ(net.logits.shape(), (Shape{2, config.classes}));
    const uint32_t channels = depth == 50 ? 2048 : config.is_for_small_images ? 64 : 512;
    EXPECT_EQ(net.features.shape(), (Shape{2, channels})) << depth;
  }
}

TEST(Resnet, HasTorchvisionsNames) {
  Graph g;
  const Resnet net = resnet(g, g.input("images", {1, 64, 64, 3}), ResnetConfig::of_depth(50));
  std::set<std::string> names;
  for (const ValueInfo& info : g.values())
    if (info.kind == Kind::parameter) names.insert(info.name);
  EXPECT_EQ(names.size(), 53 + 53 * 4 + 2U);
  for (const char* name : {"conv1.weight", "bn1.running_mean", "layer1.0.conv3.weight", "layer1.0.bn3.bias",
                           "layer1.0.downsample.0.weight", "layer4.0.downsample.1.running_var",
                           "layer3.5.bn2.weight", "fc.weight", "fc.bias"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(net.kernels.size(), 53U);
  EXPECT_EQ(net.kernels.at("conv1.weight"), (Shape{64, 3, 7, 7}));
  EXPECT_EQ(net.kernels.at("layer2.0.conv2.weight"), (Shape{128, 128, 3, 3}));
  EXPECT_EQ(g.find("layer2.0.conv2.weight").shape(), (Shape{128, 1152}));
}

TEST(Resnet, HasShortcutsOfEitherKind) {
  ResnetConfig config = ResnetConfig::of_depth(20);
  for (const Shortcut shortcut : {Shortcut::padding, Shortcut::projection}) {
    config.shortcut = shortcut;
    Graph g;
    resnet(g, g.input("images", {1, 32, 32, 3}), config);
    EXPECT_EQ(g.contains("layer2.0.downsample.0.weight"), shortcut == Shortcut::projection);
    EXPECT_EQ(learned(g), shortcut == Shortcut::projection ? 272'474U : 269'722U);
  }
  EXPECT_EQ(shortcut_named(name_of(Shortcut::padding)), Shortcut::padding);
}

/// Loss of a training step on images of 8 bits, `rows` in a micro-batch of a replica.
Graph step_of(const ResnetConfig& config, const ResnetOptions& options, uint32_t micro_batches = 1,
              uint32_t replicas = 1, uint32_t rows = 4) {
  Graph g;
  const Value pixels = g.input("images", {rows, 8, 8, 3}, Type::u8);
  const Resnet net = resnet(g, normalised_pixels(pixels, {120, 110, 100}, {60, 50, 70}), config, options);
  const Value loss = cross_entropy(net.logits, g.input("labels", {rows}, Type::u32), {.smoothing = 0.1});
  g.output("loss", loss);
  add_training(loss, {.optimizer = Sgd{.momentum = 0.9, .weight_decay = 1e-4},
                      .micro_batches = micro_batches,
                      .replicas = replicas});
  return g;
}

WideArrays inputs_of(const Graph& g) {
  WideArrays arrays = {{"lr", {0.1}}};
  for (const ValueId id : g.inputs()) {
    const ValueInfo& info = g.info(id);
    if (info.name != "lr")
      arrays[info.name] = random_values(g.bound_type(id), -1, 1, info.name == "labels" ? 5 : 256, 3, 0);
  }
  return arrays;
}

/// Two steps on a machine, compared with float64.
void expect_trains(const Graph& g, const Machine& machine) {
  Session session(g, machine, {.seed = 4});
  WideArrays state = widened(session.state());
  const WideArrays inputs = inputs_of(g);
  const Arrays narrow = narrowed(inputs);
  for (int step = 0; step < 2; ++step) {
    const WideArrays expected = evaluate(g, inputs, state);
    const float loss = session.run(narrow).at("loss").at(0);
    EXPECT_NEAR(loss, expected.at("loss").at(0), 1e-4);
  }
  const Arrays found = session.state();
  for (const char* name : {"bn1.running_mean", "layer2.0.bn2.running_var", "conv1.weight", "fc.bias"}) {
    const std::vector<double>& expected = state.at(name);
    const std::vector<float>& values = found.at(name);
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(values[i], expected[i], 2e-3 * (1 + std::abs(expected[i]))) << name << ", element " << i;
  }
}

TEST(Resnet, TrainsAsInFloat64) {
  for (const uint32_t micro_batches : {1U, 2U}) {
    SCOPED_TRACE(testing::Message() << micro_batches << " micro-batches");
    expect_trains(step_of(small_config(), {.training = true}, micro_batches), Machine::host(2));
  }
}

TEST(Resnet, TrainsOnTiles) {
  expect_trains(step_of(small_config(), {.training = true}), Machine::find("bow").with("tiles", 16));
}

TEST(Resnet, TrainsWithSparseConvolutionsThatMayChange) {
  ResnetOptions options{.training = true, .dynamic = true};
  options.patterns["layer1.0.conv1.weight"] =
      sparse::generate_pattern({PatternKind::random, 8, 72, 0.4, 4, 1});
  options.patterns["layer2.0.conv2.weight"] =
      sparse::generate_pattern({PatternKind::random, 16, 144, 0.3, 8, 2});
  const Graph g = step_of(small_config(), options);
  expect_trains(g, Machine::host(2));
  Session session(g, Machine::host(1));
  const std::string name = "layer1.0.conv1.weight";
  const Pattern other = sparse::generate_pattern({PatternKind::random, 8, 72, 0.4, 4, 9});
  session.set_pattern(name, other);
  EXPECT_EQ(session.pattern(name), other);
}

TEST(Resnet, FollowsTheMeanOfReplicas) {
  const Graph g = step_of(small_config(), {.training = true, .replicas = 2}, 1, 2);
  Session session(g, Machine::host(1));
  const Arrays inputs = narrowed(inputs_of(g));
  session.run(inputs);
  // Each replica alone.
  const Graph one = step_of(small_config(), {.training = true});
  std::vector<double> mean(8);
  for (int replica = 0; replica < 2; ++replica) {
    Session alone(one, Machine::host(1));
    alone.set_state(Session(g, Machine::host(1)).state());
    Arrays own = inputs;
    for (const char* name : {"images", "labels"}) {
      const std::vector<float>& all = inputs.at(name);
      const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
      own[name] = {all.begin() + replica * half, all.begin() + (replica + 1) * half};
    }
    alone.run(own);
    const std::vector<float> found = alone.get("bn1.running_mean");
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += found.at(i) / 2.0;
  }
  const std::vector<float> running = session.get("bn1.running_mean");
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(running.at(i), mean[i], 1e-5);
}

/// The state after a step in float64, from the initial contents of another graph.
WideArrays state_after(const Graph& g, const Graph& initial, double& loss) {
  WideArrays state = widened(initial_state(initial, 4));
  loss = evaluate(g, inputs_of(g), state).at("loss").at(0);
  return state;
}

/// Calls of functions, calls that keep only the inputs of blocks, and groups of replicas change nothing.
TEST(Resnet, IsTheSameWithBlocksThatAreComputedAgainAndGroupsOfReplicas) {
  ResnetConfig config = small_config();
  config.blocks = {2, 2};
  config.shortcut = Shortcut::projection;
  const Graph plain = step_of(config, {.training = true});
  double expected_loss = 0, loss = 0;
  const WideArrays expected = state_after(plain, plain, expected_loss);
  const Graph again = step_of(config, {.training = true, .recompute = true}),
              divided = step_of(
                  config, {.training = true, .replicas = 2, .norm_replicas = 2, .recompute = true}, 1, 2, 2);
  for (const Graph* g : {&again, &divided}) {
    SCOPED_TRACE(g == &again ? "recomputed" : "divided");
    const WideArrays state = state_after(*g, plain, loss);
    EXPECT_NEAR(loss, expected_loss, 1e-10);
    for (const auto& [name, values] : expected) test::expect_near(state.at(name), values, 1e-10, name);
  }
}

TEST(Resnet, CallsEqualBlocksAsOneFunction) {
  ResnetConfig config = small_config();
  config.blocks = {3, 2};
  for (const bool recompute : {false, true}) {
    Graph g;
    resnet(g, g.input("x", {2, 8, 8, 3}), config,
           {.training = true, .block_calls = !recompute, .recompute = recompute});
    std::set<const Graph*> functions;
    size_t calls = 0;
    for (const Node& node : g.nodes())
      if (node.body) {
        functions.insert(node.body.get());
        EXPECT_EQ(node.integer("recompute", 0), recompute ? 1 : 0);
        ++calls;
      }
    EXPECT_EQ(calls, 5U);
    EXPECT_EQ(functions.size(), 3U);  // the first block of the second stage changes sizes
  }
}

TEST(Resnet, TrainsWithBlocksThatAreComputedAgain) {
  const ResnetOptions options{.training = true, .recompute = true};
  expect_trains(step_of(small_config(), options, 2), Machine::host(2));
  if (test::is_full())
    expect_trains(step_of(small_config(), options), Machine::find("bow").with("tiles", 16));
}

TEST(Resnet, EvaluatesWithRunningStatistics) {
  Session trained(step_of(small_config(), {.training = true}), Machine::host(1));
  Graph g;
  g.output("logits", resnet(g, g.input("x", {2, 8, 8, 3}), small_config()).logits);
  Session evaluation(g, trained);
  std::vector<float> images(2 * 8 * 8 * 3);
  base::RandomStream(2).fill_normal(images);
  const std::vector<float> before = evaluation.run({{"x", images}}).at("logits");
  trained.set("bn1.running_mean", std::vector<float>(8, 0.5F));
  EXPECT_NE(evaluation.run({{"x", images}}).at("logits"), before);
}

TEST(Resnet, RefusesWhatDoesNotFit) {
  const auto refuses = [](const std::string& message, const auto& make) {
    const std::string error = test::error_of<UsageError>(make);
    EXPECT_TRUE(test::says(error, message));
  };
  refuses("unknown depth 21 of a ResNet", [] { ResnetConfig::of_depth(21); });
  refuses("unknown depth 0 of a ResNet", [] { ResnetConfig::of_depth(0); });
  refuses("unknown shortcut", [] { shortcut_named("long"); });
  Graph g;
  const Value images = g.input("images", {1, 8, 8, 3}), pixels = g.input("pixels", {1, 8, 8, 3}, Type::u8);
  refuses("they must be [samples, height, width, channels]", [&] {
    resnet(g, g.input("flat", {8, 3}), small_config());
  });
  refuses("which is not a weight of a convolution", [&] {
    ResnetOptions options;
    options.patterns["fc.weight"] = sparse::generate_pattern({PatternKind::random, 5, 16, 0.5, 1, 1});
    Graph other;
    resnet(other, other.input("images", {1, 8, 8, 3}), small_config(), options);
  });
  refuses("the weight is 8 × 27", [&] {
    ResnetOptions options;
    options.patterns["conv1.weight"] = sparse::generate_pattern({PatternKind::random, 8, 8, 0.5, 1, 1});
    Graph other;
    resnet(other, other.input("images", {1, 8, 8, 3}), small_config(), options);
  });
  refuses("are not functions", [&] {
    ResnetOptions options{.dynamic = true, .recompute = true};
    options.patterns["layer1.0.conv1.weight"] =
        sparse::generate_pattern({PatternKind::random, 8, 72, 0.4, 4, 1});
    Graph other;
    resnet(other, other.input("images", {1, 8, 8, 3}), small_config(), options);
  });
  refuses("it takes u8", [&] { normalised_pixels(images, {0, 0, 0}, {1, 1, 1}); });
  refuses("with 1 means", [&] { normalised_pixels(pixels, {0}, {1, 1, 1}); });
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double deviation : {0.0, -1.0, 1e-40, infinite, std::nan("")})
    refuses("a deviation of", [&] { normalised_pixels(pixels, {0, 0, 0}, {1, deviation, 1}); });
  for (const double mean : {infinite, 1e39, std::nan("")})
    refuses("a mean of", [&] { normalised_pixels(pixels, {0, 0, mean}, {1, 1, 1}); });
}

}  // namespace
}  // namespace tessera::graph
