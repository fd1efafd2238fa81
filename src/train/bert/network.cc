#include "train/bert/network.h"

#include "train/bert/settings.h"
#include "train/network.h"

namespace tessera::train {
namespace {

using graph::Bert;
using graph::Graph;

Bert add_model(Graph& graph, const PretrainingSettings& s, const graph::BertBatch& batch,
               std::optional<graph::Value> step) {
  const Bert bert = bert_for_pretraining(
      graph, s.config, batch, {.average = s.average, .step = step, .seed = s.seed, .numbers = numbers_of(s)});
  graph.output(kMaskedLmLoss, bert.masked_lm_loss.value());
  graph.output(kNextSentenceLoss, bert.next_sentence_loss);
  return bert;
}

}  // namespace

Graph pretraining_graph(const PretrainingSettings& s, graph::BertBatch batch) {
  batch.packs /= s.micro_batches;
  Graph graph;
  std::optional<graph::Value> step;
  if (s.config.hidden_dropout_prob > 0 || s.config.attention_probs_dropout_prob > 0)
    step = graph.input(kDropoutStep, {}, Type::u32);
  const Bert bert = add_model(graph, s, batch, step);
  graph.output(kLoss, bert.loss);
  graph::TrainingOptions options = training_options(s, {});
  options.micro_batches = s.micro_batches;
  options.seed = s.seed;
  set_numbers(options, numbers_of(s));
  add_training(bert.loss, options);
  return graph;
}

Graph pretraining_evaluation_graph(const PretrainingSettings& s, const graph::BertBatch& batch) {
  Graph graph;
  add_model(graph, s, batch, {});
  return graph;
}

}  // namespace tessera::train
