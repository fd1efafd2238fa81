// Structured layers: their parameters, and that they compute a linear map with the size of a dense map.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/layers.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/random.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

constexpr LayerStructure kAll[] = {
    LayerStructure::dense,    LayerStructure::butterfly, LayerStructure::bpbp,
    LayerStructure::pixelfly, LayerStructure::fastfood,  LayerStructure::circulant,
    LayerStructure::low_rank, LayerStructure::monarch,   LayerStructure::block_butterfly};

uint64_t parameters(const Layer& layer) {
  uint64_t count = 0;
  for (const Value& parameter : layer.parameters) count += parameter.type().elements();
  return count;
}

TEST(Layers, HaveTheParametersOfTheSingleHiddenLayerBenchmark) {
  // Shekofteh et al. 2023, table 4: 1024 inputs and hidden features, 10 classes.
  const std::pair<LayerOptions, uint64_t> table[] = {
      {{.structure = LayerStructure::dense}, 1'059'850},
      {{.structure = LayerStructure::butterfly}, 16'390},
      {{.structure = LayerStructure::fastfood}, 14'346},
      {{.structure = LayerStructure::circulant}, 12'298},
      {{.structure = LayerStructure::low_rank}, 13'322},
      {{.structure = LayerStructure::pixelfly, .rank = 32, .block_size = 32, .butterfly_size = 16}, 404'490},
      {{.structure = LayerStructure::block_butterfly, .block_size = 32}, 5 * 2 * 32 * 1024 + 11'274},
  };
  for (auto [options, expected] : table)
    for (const Form form : {Form::fused, Form::unfused}) {
      options.form = form;
      Graph graph;
      const Layer layer = linear_layer(graph, "hidden", graph.input("x", {50, 1024}), 1024, options);
      constexpr uint64_t kBias = 1024, kOutput = 1024 * 10 + 10;
      EXPECT_EQ(parameters(layer) + kBias + kOutput, expected) << name_of(options.structure);
    }
}

/// Table 5's sweeps of pixelfly: sample means and deviations of the numbers of parameters.
TEST(Layers, HaveTheParametersOfPixelflysSweeps) {
  struct Sweep {
    uint32_t butterfly, block, rank;
    uint32_t LayerOptions::*varied;
    uint32_t first, last;
    double mean, deviation;
  };
  const Sweep sweeps[] = {
      {0, 32, 2, &LayerOptions::butterfly_size, 2, 256, 450'570, 326'625},
      {128, 0, 2, &LayerOptions::block_size, 8, 128, 262'154, 184'638},
      {16, 16, 0, &LayerOptions::rank, 2, 256, 470'538, 181'317},
  };
  for (const Sweep& sweep : sweeps) {
    std::vector<double> counts;
    for (uint32_t size = sweep.first; size <= sweep.last; size *= 2) {
      LayerOptions options{.structure = LayerStructure::pixelfly,
                           .rank = sweep.rank,
                           .block_size = sweep.block,
                           .butterfly_size = sweep.butterfly};
      options.*sweep.varied = size;
      Graph graph;
      const Layer layer = linear_layer(graph, "hidden", graph.input("x", {50, 1024}), 1024, options);
      counts.push_back(static_cast<double>(parameters(layer) + 2 * 1024 + 10'250));
    }
    double mean = 0, squares = 0;
    for (double count : counts) mean += count / static_cast<double>(counts.size());
    for (double count : counts) squares += (count - mean) * (count - mean);
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(counts.size() - 1)), sweep.deviation, 0.5);
    EXPECT_NEAR(mean, sweep.mean, 0.5);
  }
}

class LayerTest : public testing::TestWithParam<LayerStructure> {};

TEST_P(LayerTest, KeepsTheSizeOfWhatItGetsAtAnyShape) {
  for (const auto& [inputs, outputs] : {std::pair(64U, 64U), {100U, 60U}, {48U, 200U}}) {
    Graph graph;
    const LayerOptions options{.structure = GetParam(), .rank = 4, .block_size = 4, .butterfly_size = 8};
    const Layer layer = linear_layer(graph, "hidden", graph.input("x", {32, inputs}), outputs, options);
    ASSERT_EQ(layer.y.shape(), (Shape{32, outputs}));
    ASSERT_EQ(layer.lr_scales.size(), layer.parameters.size());
    graph.output("y", layer.y);
    std::vector<float> x(size_t{32} * inputs);
    base::RandomStream(1).fill_normal(x);
    Session session(graph, Machine::host(2));
    const std::vector<float> y = session.run({{"x", x}}).at("y");
    double squares = 0;
    for (float value : y) squares += double{value} * value / static_cast<double>(y.size());
    EXPECT_LT(std::sqrt(squares), 2.5) << inputs << " to " << outputs;
    EXPECT_GT(std::sqrt(squares), GetParam() == LayerStructure::low_rank ? 0.01 : 0.4)
        << inputs << " to " << outputs;
  }
}

TEST_P(LayerTest, LearnsADenseMap) {
  constexpr uint32_t kRows = 64, kSize = 32;
  Graph graph;
  const LayerOptions options{.structure = GetParam(), .rank = 4, .block_size = 4, .butterfly_size = 8};
  const Layer layer = linear_layer(graph, "hidden", graph.input("x", {kRows, kSize}), kSize, options);
  const Value loss = mean_squared_error(layer.y, graph.input("target", {kRows, kSize}));
  graph.output("loss", loss);
  TrainingOptions training{.optimizer = Adam{}};
  for (size_t i = 0; i < layer.parameters.size(); ++i)
    training.groups.push_back({.parameters = {layer.parameters[i]}, .lr_scale = layer.lr_scales[i]});
  add_training(loss, training);
  std::vector<float> x(kRows * kSize), target(x.size());
  base::RandomStream(1).fill_normal(x);
  for (size_t i = 0; i < x.size(); ++i) target[i] = x[i / kSize * kSize + (i + 1) % kSize];
  Session session(graph, Machine::host(2));
  double first = 0, last = 0;
  for (uint32_t step = 1; step <= 100; ++step) {
    last = session.run({{"x", x}, {"target", target}, {"lr", {0.02F}}, {"step", {static_cast<float>(step)}}})
               .at("loss")[0];
    if (step == 1) first = last;
  }
  EXPECT_LT(last, 0.9 * first);
}

INSTANTIATE_TEST_SUITE_P(Model, LayerTest, testing::ValuesIn(kAll), [](const auto& of) {
  std::string name(name_of(of.param));
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

TEST(Layers, UnscaledFastfoodHasRowsOfNormalMatrices) {
  Graph graph;
  const LayerOptions options{.structure = LayerStructure::fastfood, .scaled = false, .seed = 3};
  const Layer layer = linear_layer(graph, "hidden", graph.input("x", {4, 500}), 700, options);
  ASSERT_EQ(layer.parameters.size(), 3u);
  const auto values = [&](size_t i) { return *graph.info(layer.parameters[i].id).initial.values; };
  const std::vector<float> s = values(0), g = values(1), b = values(2);
  ASSERT_EQ(s.size(), 1024u);
  for (size_t stack = 0; stack < 2; ++stack) {
    double norm = 0;
    for (size_t i = 0; i < 512; ++i) norm += std::pow(g[512 * stack + i], 2);
    double mean = 0;
    for (size_t i = 0; i < 512; ++i) mean += std::pow(s[512 * stack + i], 2) * norm / 512;
    EXPECT_NEAR(mean, 512, 10);  // of χ² with as many degrees of freedom, whose deviation is √(2 · 512)
  }
  for (float sign : b) EXPECT_EQ(std::abs(sign), 1);
  EXPECT_GT(std::ranges::count(b, 1.0F), 400);
  EXPECT_LT(std::ranges::count(b, 1.0F), 624);
}

TEST(Layers, RefusesWhatAStructureCannotBe) {
  const auto message = [](const LayerOptions& options) {
    Graph graph;
    const Value x = graph.input("x", {4, 32});
    return test::error_of<UsageError>([&] { linear_layer(graph, "hidden", x, 32, options); });
  };
  EXPECT_TRUE(test::says(message({.rank = 0}), "a rank of 0"));
  EXPECT_TRUE(test::says(message({.structure = LayerStructure::pixelfly, .butterfly_size = 12}),
                         "a butterfly size of 12"));
  EXPECT_TRUE(test::says(test::error_of<UsageError>([] { layer_structure_named("wavelet"); }),
                         "unknown structure 'wavelet' (choose from dense, butterfly"));
}

}  // namespace
}  // namespace tessera::graph
