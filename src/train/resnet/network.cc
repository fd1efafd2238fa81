#include "train/resnet/network.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "graph/transforms/loss_scale.h"
#include "graph/transforms/updates.h"
#include "sparse/generate.h"
#include "train/network.h"
#include "train/resnet/settings.h"

namespace tessera::train {
namespace {

using graph::Graph;
using graph::Value;

// A stream of random numbers, apart from those of a graph's operations.
constexpr uint32_t kConvolutionStream = 0x72657300;

Value add_logits(Graph& graph, const ResnetTrainingSettings& s, const ImageFormat& images, uint32_t rows,
                 const graph::ResnetOptions& options) {
  graph::ResnetConfig config = graph::ResnetConfig::of_depth(s.depth);
  config.shortcut = shortcut_of(s);
  config.classes = images.classes;
  const Value pixels = graph.input(kImages, {rows, images.height, images.width, images.channels}, Type::u8);
  const Value x = normalised_pixels(pixels, images.statistics.mean, images.statistics.deviation);
  return resnet(graph, x, config, options).logits;
}

graph::ResnetOptions options_of(const ResnetTrainingSettings& s, bool training, const Patterns& patterns) {
  return {.training = training,
          .numbers = graph::numbers_named(s.numbers),
          .patterns = patterns,
          .dynamic = s.drop_grow.kind != DropGrowKind::none};
}

Value loss_of(const ResnetTrainingSettings& s, Value logits) {
  Graph& graph = logits.owner();
  const Value labels = graph.input(kLabels, {logits.shape()[0]}, Type::u32);
  return cross_entropy(logits, labels, {.smoothing = s.label_smoothing});
}

/// The parameters with one dimension.
std::vector<Value> vectors_of(Graph& graph) {
  std::vector<Value> vectors;
  for (graph::ValueId id = 0; id < graph.values().size(); ++id)
    if (graph.info(id).kind == graph::Kind::parameter && graph.type(id).shape.size() == 1)
      vectors.push_back(graph.value(id));
  return vectors;
}

graph::TrainingOptions training_options_of(Graph& graph, const ResnetTrainingSettings& s) {
  std::vector<graph::ParameterGroup> groups = s.groups;
  if (s.optimizer == OptimizerKind::lars && s.excluded.empty())
    groups.push_back({.parameters = vectors_of(graph), .weight_decay = 0, .trust_ratio = false});
  graph::TrainingOptions options = training_options(s, std::move(groups));
  set_placement(options, s);
  options.seed = s.seed;
  set_numbers(options, graph::numbers_named(s.numbers));
  return options;
}

}  // namespace

uint32_t rows_of_part(const ResnetTrainingSettings& s) { return s.batch / s.micro_batches / s.replicas; }

std::map<std::string, graph::Shape> kernels_of(const ResnetTrainingSettings& s, const ImageFormat& images) {
  Graph graph;
  graph::ResnetConfig config = graph::ResnetConfig::of_depth(s.depth);
  config.shortcut = shortcut_of(s);
  const Value x = graph.input(kImages, {1, images.height, images.width, images.channels});
  return resnet(graph, x, config).kernels;
}

Patterns initial_patterns(const ResnetTrainingSettings& s, const ImageFormat& images) {
  Patterns patterns;
  if (!is_sparse(s)) return patterns;
  uint32_t number = 0;
  for (const auto& [name, kernel] : kernels_of(s, images)) {
    if (name == "conv1.weight") continue;
    const auto words = base::RandomStream(s.seed, number++, kConvolutionStream).words(0);
    const uint32_t rows = kernel[0], cols = kernel[1] * kernel[2] * kernel[3];
    Pattern pattern = sparse::generate_pattern({.kind = PatternKind::random,
                                                .rows = rows,
                                                .cols = cols,
                                                .density = s.density,
                                                .block_size = s.block_size,
                                                .seed = uint64_t{words[0]} << 32 | words[1]});
    if (pattern.blocks() == 0)
      throw UsageError(
          fmt::format("a density of {} leaves the convolution '{}', {} × {}, without a block of {} × {}; "
                      "give a higher one",
                      s.density, name, rows, cols, s.block_size, s.block_size));
    patterns.emplace(name, std::move(pattern));
  }
  return patterns;
}

Graph resnet_training_graph(const ResnetTrainingSettings& s, const ImageFormat& images,
                            const Patterns& patterns) {
  Graph graph;
  graph::ResnetOptions options = options_of(s, true, patterns);
  options.replicas = s.replicas;
  options.norm_replicas = s.norm_replicas;
  options.block_calls = s.memory_budget.has_value();
  options.recompute = s.recompute;
  const Value logits = add_logits(graph, s, images, rows_of_part(s), options);
  const Value loss = loss_of(s, logits);
  graph.output(kLoss, loss);
  if (s.micro_batches == 1) graph.output(kLogits, logits);
  add_training(loss, training_options_of(graph, s));
  return graph;
}

Graph resnet_evaluation_graph(const ResnetTrainingSettings& s, const ImageFormat& images,
                              const Patterns& patterns, uint32_t rows) {
  Graph graph;
  graph.output(kLogits, add_logits(graph, s, images, rows, options_of(s, false, patterns)));
  place_weights(graph, settings_of_parameters(graph, training_options_of(graph, s)), false);
  graph.set_prefetch(s.prefetch);
  return graph;
}

std::string gradient_name(const std::string& weight) { return weight + ".gradient"; }

Graph resnet_gradient_graph(const ResnetTrainingSettings& s, const ImageFormat& images,
                            const Patterns& patterns) {
  Graph graph;
  const uint32_t joint = replicas_of_norm(s);
  const Value loss =
      loss_of(s, add_logits(graph, s, images, rows_of_part(s) * joint, options_of(s, true, {})));
  // As in training, so that small ones do not vanish in FP16.
  std::optional<graph::ScaledLoss> scaled;
  if (const auto scale = graph::numbers_named(s.numbers).loss_scale)
    scaled.emplace(loss, graph::LossScale{.initial = scale->initial, .grow_after = 0});
  std::vector<Value> weights;
  for (const auto& [name, pattern] : patterns) weights.push_back(graph.find(name));
  const std::vector<std::optional<Value>> found = gradients(scaled ? scaled->loss() : loss, weights);
  size_t i = 0;
  for (const auto& [name, pattern] : patterns) {
    const Value gradient = found[i++].value();
    graph.output(gradient_name(name), scaled ? scaled->unscaled(gradient) : cast(gradient, Type::f32));
  }
  const uint32_t parts = s.micro_batches * s.replicas / joint;
  if (parts > 1) graph.repeat_for_micro_batches(parts);
  return graph;
}

}  // namespace tessera::train
