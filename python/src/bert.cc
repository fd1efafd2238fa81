// BERT for pretraining, as values of a graph.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <tessera/bert.h>
#include <tessera/sparse.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using graph::Bert;
using graph::BertBatch;
using graph::BertConfig;
using graph::Graph;
using graph::Value;

std::map<std::string, graph::ValueId> add_bert(Graph& g, const BertConfig& config, const BertBatch& batch,
                                               const std::string& average, std::optional<graph::ValueId> step,
                                               uint64_t seed, const std::string& numbers,
                                               uint32_t head_slices,
                                               const std::map<std::string, SparseMatrix>& patterns,
                                               bool dynamic, const std::vector<uint32_t>& layer_stages,
                                               const std::vector<uint32_t>& feed_forward_stages,
                                               bool head_with_last_layer, bool recompute) {
  graph::BertOptions options{.average = graph::packed_average_named(average),
                             .seed = seed,
                             .numbers = graph::numbers_named(numbers),
                             .head_slices = head_slices,
                             .layer_stages = layer_stages,
                             .feed_forward_stages = feed_forward_stages,
                             .head_with_last_layer = head_with_last_layer,
                             .recompute_layers = recompute,
                             .dynamic = dynamic};
  if (step) options.step = g.value(*step);
  for (const auto& [name, matrix] : patterns) options.patterns[name] = matrix.pattern;
  const Bert bert = graph::bert_for_pretraining(g, config, batch, options);
  std::map<std::string, graph::ValueId> values = {{"hidden", bert.hidden.id},
                                                  {"pooled", bert.pooled.id},
                                                  {"next_sentence_logits", bert.next_sentence_logits.id},
                                                  {"next_sentence_loss", bert.next_sentence_loss.id},
                                                  {"loss", bert.loss.id}};
  if (bert.masked_lm_logits) values["masked_lm_logits"] = bert.masked_lm_logits->id;
  if (bert.masked_lm_loss) values["masked_lm_loss"] = bert.masked_lm_loss->id;
  return values;
}

}  // namespace

void bind_bert(nb::module_& m, nb::class_<Graph>& graph) {
  nb::class_<BertConfig>(
      m, "BertConfig",
      "The sizes of a BERT, with the names of Hugging Face's configurations. The default is "
      "BERT-base.")
      .def(nb::init<>())
      .def_static("named", &BertConfig::named, "name"_a,
                  "BERT-tiny, -mini, -small, -medium, -base or -large, as published (Turc et al. 2019).")
      .def_rw("vocab_size", &BertConfig::vocab_size)
      .def_rw("hidden_size", &BertConfig::hidden_size)
      .def_rw("num_hidden_layers", &BertConfig::num_hidden_layers)
      .def_rw("num_attention_heads", &BertConfig::num_attention_heads)
      .def_rw("intermediate_size", &BertConfig::intermediate_size)
      .def_rw("max_position_embeddings", &BertConfig::max_position_embeddings)
      .def_rw("type_vocab_size", &BertConfig::type_vocab_size)
      .def_rw("hidden_dropout_prob", &BertConfig::hidden_dropout_prob)
      .def_rw("attention_probs_dropout_prob", &BertConfig::attention_probs_dropout_prob)
      .def_rw("layer_norm_eps", &BertConfig::layer_norm_eps)
      .def_rw("initializer_range", &BertConfig::initializer_range);
  nb::class_<BertBatch>(m, "BertBatch")
      .def(nb::init<uint32_t, uint32_t, uint32_t, uint32_t>(), "packs"_a, "tokens"_a, "sequences"_a,
           "predictions"_a);
  graph.def("bert_for_pretraining", &add_bert, "config"_a, "batch"_a, "average"_a, "step"_a.none(), "seed"_a,
            "numbers"_a, "head_slices"_a, "patterns"_a, "dynamic"_a, "layer_stages"_a,
            "feed_forward_stages"_a, "head_with_last_layer"_a, "recompute"_a);
}

}  // namespace tessera::python
