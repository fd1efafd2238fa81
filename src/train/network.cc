#include "train/network.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/io.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"
#include "sparse/generate.h"
#include "train/settings.h"

namespace tessera::train {
namespace {

using base::RandomStream;
using graph::Graph;
using graph::Initial;
using graph::Value;

// Streams of random numbers, separate from the streams of a graph's operations.
constexpr uint32_t kPatternStream = 0x6E657400;
constexpr uint32_t kWeightStream = 0x6E657401;
constexpr uint32_t kBiasStream = 0x6E657402;

std::string bias_name(size_t layer) { return fmt::format("layer{}.bias", layer + 1); }

/// Rows and columns of block `b` wide blocks that lie inside the matrix.
uint32_t inside(uint32_t size, uint32_t b, uint32_t block) { return std::min(b, size - block * b); }

/// Normal values with a standard deviation of 1/√inputs for each row; the overhang of edge blocks is 0.
Initial sparse_weights(const Pattern& p, const RandomStream& random) {
  const uint32_t b = p.block_size;
  std::vector<float> values(p.blocks() * b * b);
  random.fill_normal(values);
  float* block = values.data();
  for (uint32_t row = 0; row < p.block_rows(); ++row) {
    uint64_t inputs = 0;
    for (uint64_t i = p.crow_indices[row]; i < p.crow_indices[row + 1]; ++i)
      inputs += inside(p.cols, b, p.col_indices[i]);
    const float scale = inputs == 0 ? 0.0F : 1 / std::sqrt(static_cast<float>(inputs));
    for (uint64_t i = p.crow_indices[row]; i < p.crow_indices[row + 1]; ++i, block += size_t{b} * b)
      for (uint32_t r = 0; r < b; ++r)
        for (uint32_t c = 0; c < b; ++c)
          block[r * b + c] *=
              r < inside(p.rows, b, row) && c < inside(p.cols, b, p.col_indices[i]) ? scale : 0;
  }
  return Initial::from(std::move(values));
}

Initial dense_weights(uint32_t m, uint32_t k, const RandomStream& random) {
  std::vector<float> values(size_t{m} * k);
  random.fill_normal(values);
  const float scale = 1 / std::sqrt(static_cast<float>(k));
  for (float& value : values) value *= scale;
  return Initial::from(std::move(values));
}

/// Uniform up to ±1/√inputs, the initial values of output layers in published networks (from
/// torch.nn.Linear).
Initial uniform_values(uint64_t count, uint32_t inputs, const RandomStream& random) {
  std::vector<float> values(count);
  random.fill_symmetric(values);
  const float scale = 1 / std::sqrt(static_cast<float>(inputs));
  for (float& value : values) value *= scale;
  return Initial::from(std::move(values));
}

/// The output layer of the recipe `paper`.
Value paper_output(Graph& graph, const TrainingSettings& s, Value x) {
  const size_t layer = s.layers.size() - 2;
  const uint32_t m = s.layers[layer + 1], k = s.layers[layer];
  const auto stream = [&](uint32_t purpose) {
    return RandomStream(s.seed, static_cast<uint32_t>(layer), purpose);
  };
  return linear(
      x,
      graph.parameter(weight_name(layer), {m, k}, uniform_values(uint64_t{m} * k, k, stream(kWeightStream))),
      graph.parameter(bias_name(layer), {m}, uniform_values(m, k, stream(kBiasStream))));
}

Value weight(Graph& graph, const TrainingSettings& s, size_t layer, const Pattern* pattern) {
  const RandomStream random(s.seed, static_cast<uint32_t>(layer), kWeightStream);
  const uint32_t m = s.layers[layer + 1], k = s.layers[layer];
  if (pattern == nullptr) return graph.parameter(weight_name(layer), {m, k}, dense_weights(m, k, random));
  const auto capacity = s.kind == LayerKind::dynamic_sparse ? std::optional(pattern->blocks()) : std::nullopt;
  return graph.sparse_parameter(weight_name(layer), *pattern, sparse_weights(*pattern, random), Type::f32,
                                capacity);
}

Value activated(const std::string& name, Value x) {
  if (name == "relu") return relu(x);
  if (name == "gelu") return gelu(x);
  if (name == "tanh") return tanh(x);
  if (name == "sigmoid") return sigmoid(x);
  return x;
}

graph::LayerOptions options_of(const TrainingSettings& s, size_t layer) {
  return {.structure = graph::layer_structure_named(name_of(s.kind)),
          .rank = s.rank,
          .block_size = s.block_size,
          .butterfly_size = s.butterfly_size,
          .scaled = s.recipe == Recipe::best,
          .seed = base::RandomStream(s.seed, static_cast<uint32_t>(layer), kWeightStream).words(0)[0],
          .form = s.form};
}

using Groups = std::vector<graph::ParameterGroup>;

/// A hidden layer's product, without bias.
Value structured(Graph& graph, const TrainingSettings& s, size_t layer, Value x, Groups& groups) {
  const graph::Layer built = graph::linear_layer(graph, fmt::format("layer{}", layer + 1), x,
                                                 s.layers[layer + 1], options_of(s, layer));
  for (size_t i = 0; i < built.parameters.size(); ++i)
    groups.push_back({.parameters = {built.parameters[i]}, .lr_scale = built.lr_scales[i]});
  return built.y;
}

/// The logits of `rows` images.
Value forward(Graph& graph, const TrainingSettings& s, const std::vector<Pattern>& patterns, uint32_t rows,
              bool training, Groups& groups) {
  Value x = graph.input(kImages, {rows, s.layers[0]});
  std::optional<Value> step;
  if (training && s.dropout > 0) step = graph.input(kDropoutStep, {}, Type::u32);
  const size_t last = s.layers.size() - 2;
  for (size_t layer = 0; layer <= last; ++layer) {
    const Pattern* pattern = layer < patterns.size() ? &patterns[layer] : nullptr;
    const auto bias = [&] { return graph.parameter(bias_name(layer), {s.layers[layer + 1]}); };
    if (layer == last && s.recipe == Recipe::paper) {
      x = paper_output(graph, s, x);
    } else if (layer != last && is_structured(s)) {
      x = structured(graph, s, layer, x, groups);
      x = x + bias();
    } else {
      const Value w = weight(graph, s, layer, pattern);
      x = linear(x, w, bias());
    }
    if (layer == last) break;
    x = activated(s.activation, x);
    if (step) x = dropout(x, s.dropout, *step, s.seed);
  }
  return x;
}

graph::Optimizer optimizer_of(const LearningSettings& s) {
  if (s.optimizer == OptimizerKind::adam || s.optimizer == OptimizerKind::adamw)
    return graph::Adam{.beta1 = s.betas.beta1,
                       .beta2 = s.betas.beta2,
                       .weight_decay = s.weight_decay,
                       .decoupled = s.optimizer == OptimizerKind::adamw,
                       .bias_correction = s.bias_correction};
  if (s.optimizer == OptimizerKind::lamb)
    return graph::Lamb{.beta1 = s.betas.beta1,
                       .beta2 = s.betas.beta2,
                       .weight_decay = s.weight_decay,
                       .bias_correction = s.bias_correction};
  if (s.optimizer == OptimizerKind::lars)
    return graph::Lars{
        .momentum = s.momentum, .weight_decay = s.weight_decay, .trust_coefficient = s.trust_coefficient};
  return graph::Sgd{.momentum = s.optimizer == OptimizerKind::sgd ? 0 : s.momentum,
                    .weight_decay = s.weight_decay,
                    .nesterov = s.optimizer == OptimizerKind::nesterov};
}

}  // namespace

std::string weight_name(size_t layer) { return fmt::format("layer{}.weight", layer + 1); }
std::string gradient_name(size_t layer) { return fmt::format("layer{}.gradient", layer + 1); }

graph::TrainingOptions training_options(const LearningSettings& s,
                                        std::vector<graph::ParameterGroup> groups) {
  if (!s.excluded.empty()) groups.push_back({.names = s.excluded, .weight_decay = 0, .trust_ratio = false});
  return {.optimizer = optimizer_of(s), .clip_norm = s.clip_norm, .groups = std::move(groups)};
}

void set_placement(graph::TrainingOptions& options, const PlacementSettings& s) {
  options.micro_batches = s.micro_batches;
  options.replicas = s.replicas;
  options.overlap = s.overlap;
  options.shard_from = s.shard_from;
  options.shard_weights_from = s.shard_weights_from;
  options.shard_gradients_from = s.shard_gradients_from;
  options.offload_from = s.offload_from;
  options.offload_weights_from = s.offload_weights_from;
  options.offload_gradients_from = s.offload_gradients_from;
  options.prefetch = s.prefetch;
  options.memory_budget = s.memory_budget;
}

std::vector<Pattern> initial_patterns(const TrainingSettings& s) {
  std::vector<Pattern> patterns;
  if (!is_sparse(s)) return patterns;
  for (size_t layer = 0; layer + 2 < s.layers.size(); ++layer) {
    const auto words = RandomStream(s.seed, static_cast<uint32_t>(layer), kPatternStream).words(0);
    patterns.push_back(sparse::generate_pattern({.kind = PatternKind::random,
                                                 .rows = s.layers[layer + 1],
                                                 .cols = s.layers[layer],
                                                 .density = s.density,
                                                 .block_size = s.block_size,
                                                 .seed = uint64_t{words[0]} << 32 | words[1]}));
    if (patterns.back().blocks() == 0)
      throw UsageError(fmt::format(
          "a density of {} leaves hidden layer {}, {} × {}, without a block of {} × {}; give a higher one",
          s.density, layer + 1, s.layers[layer + 1], s.layers[layer], s.block_size, s.block_size));
  }
  return patterns;
}

Graph training_graph(const TrainingSettings& s, const std::vector<Pattern>& patterns) {
  Graph graph;
  const uint32_t rows = s.batch / s.micro_batches;
  Groups groups;
  const Value logits = forward(graph, s, patterns, rows, true, groups);
  const Value loss = cross_entropy(logits, graph.input(kLabels, {rows}, Type::u32));
  graph.output(kLoss, loss);
  if (s.micro_batches == 1) graph.output(kLogits, logits);
  graph::TrainingOptions options = training_options(s, std::move(groups));
  options.micro_batches = s.micro_batches;
  add_training(loss, options);
  return graph;
}

Graph evaluation_graph(const TrainingSettings& s, const std::vector<Pattern>& patterns, uint32_t rows) {
  Graph graph;
  Groups groups;
  graph.output(kLogits, forward(graph, s, patterns, rows, false, groups));
  return graph;
}

Graph gradient_graph(const TrainingSettings& s) {
  Graph graph;
  const uint32_t rows = s.batch / s.micro_batches;
  Groups groups;
  const Value logits = forward(graph, s, {}, rows, true, groups);
  const Value loss = cross_entropy(logits, graph.input(kLabels, {rows}, Type::u32));
  std::vector<Value> weights;
  for (size_t layer = 0; layer + 2 < s.layers.size(); ++layer)
    weights.push_back(graph.find(weight_name(layer)));
  const std::vector<std::optional<Value>> found = gradients(loss, weights);
  for (size_t layer = 0; layer < found.size(); ++layer)
    graph.output(gradient_name(layer), found[layer].value());
  if (s.micro_batches > 1) graph.repeat_for_micro_batches(s.micro_batches);
  return graph;
}

std::vector<graph::Tensor> taken_by(const graph::Graph& graph, std::vector<graph::Tensor> arrays) {
  std::erase_if(arrays, [&](const graph::Tensor& array) {
    return !graph.contains(array.name) && !graph.outputs().contains(array.name);
  });
  return arrays;
}

}  // namespace tessera::train
