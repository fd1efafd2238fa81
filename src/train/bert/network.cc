#include "train/bert/network.h"

#include <tessera/gradients.h>

#include <algorithm>

#include "graph/transforms/updates.h"
#include "train/bert/settings.h"
#include "train/network.h"

namespace tessera::train {
namespace {

using graph::Bert;
using graph::Graph;

/// The stage of each layer or layer part: `counts` of them are on each stage, and the last `with_head` on the
/// stage after.
std::vector<uint32_t> stages_of(const std::vector<uint32_t>& counts, uint32_t with_head) {
  std::vector<uint32_t> stages;
  for (uint32_t stage = 0; stage < counts.size(); ++stage) stages.insert(stages.end(), counts[stage], stage);
  stages.insert(stages.end(), with_head, static_cast<uint32_t>(counts.size()));
  return stages;
}

/// The stage of each layer, if layers are divided among several stages.
std::vector<uint32_t> stages_of_layers(const PretrainingSettings& s) {
  std::vector<uint32_t> stages = stages_of(s.stage_layers, s.head_layers);
  if (s.stages > 1 && stages.empty())
    for (uint32_t layer = 0; layer < s.config.num_hidden_layers; ++layer)
      stages.push_back(layer * s.stages / s.config.num_hidden_layers);
  return stages;
}

/// At most `slices` slices of equal size.
uint32_t head_slices_of(const graph::BertBatch& batch, uint32_t slices) {
  const uint32_t predictions = batch.packs * batch.predictions;
  slices = std::clamp(predictions, 1U, slices);
  while (predictions % slices != 0) --slices;
  return slices;
}

Bert add_model(Graph& graph, const PretrainingSettings& s, const graph::BertBatch& batch, bool trains) {
  graph::BertOptions options{.average = s.average,
                             .seed = s.seed,
                             .numbers = numbers_of(s),
                             .head_slices = head_slices_of(batch, s.head_slices)};
  const bool drops = s.config.hidden_dropout_prob > 0 || s.config.attention_probs_dropout_prob > 0;
  if (trains) {
    if (drops) options.step = graph.input(kDropoutStep, {}, Type::u32);
    options.layer_stages = stages_of_layers(s);
    if (!s.stage_feed_forwards.empty())
      options.feed_forward_stages = stages_of(s.stage_feed_forwards, s.head_feed_forwards);
    options.head_with_last_layer = s.head_layers + s.head_feed_forwards > 0;
    options.recompute_layers = s.recompute;
  }
  const Bert bert = bert_for_pretraining(graph, s.config, batch, options);
  graph.output(kMaskedLmLoss, bert.masked_lm_loss.value());
  graph.output(kNextSentenceLoss, bert.next_sentence_loss);
  return bert;
}

graph::TrainingOptions options_of(const PretrainingSettings& s) {
  graph::TrainingOptions options = training_options(s, s.groups);
  set_placement(options, s);
  options.pipeline.kind = s.pipeline;
  options.pipeline.offload_from = s.offload_activations_from;
  options.seed = s.seed;
  set_numbers(options, numbers_of(s));
  return options;
}

}  // namespace

Graph pretraining_graph(const PretrainingSettings& s, graph::BertBatch batch) {
  batch.packs /= s.micro_batches * s.replicas;
  Graph graph;
  const Bert bert = add_model(graph, s, batch, true);
  graph.output(kLoss, bert.loss);
  add_training(bert.loss, options_of(s));
  return graph;
}

Graph pretraining_evaluation_graph(const PretrainingSettings& s, const graph::BertBatch& batch) {
  Graph graph;
  add_model(graph, s, batch, false);
  place_weights(graph, settings_of_parameters(graph, options_of(s)), false);
  graph.set_prefetch(s.prefetch);
  return graph;
}

}  // namespace tessera::train
