// BERT for pretraining on packed sequences (Devlin et al. 2019; Krell et al. 2021).
#pragma once

#include <tessera/graph.h>
#include <tessera/numbers.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::graph {

/// Label of a masked token, or of a sequence pair, that does not count: PyTorch's -100.
inline constexpr uint32_t kIgnoredLabel = 0U - 100U;

/// The sizes of a model, with the names of Hugging Face's configurations. The default is BERT-base.
struct BertConfig {
  uint32_t vocab_size = 30522;
  uint32_t hidden_size = 768;
  uint32_t num_hidden_layers = 12;
  uint32_t num_attention_heads = 12;
  uint32_t intermediate_size = 3072;
  uint32_t max_position_embeddings = 512;
  uint32_t type_vocab_size = 2;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;  ///< standard deviation of initial weights

  /// "tiny" (2 layers of 128), "mini" (4 of 256), "small" (4 of 512), "medium" (8 of 512), "base" (12 of 768)
  /// and "large" (24 of 1,024), as published (Turc et al. 2019). Throws UsageError for another name.
  static BertConfig named(std::string_view name);
};

/// How many arrays of a batch have of what.
struct BertBatch {
  uint32_t packs = 1;
  uint32_t tokens = 512;      ///< of each pack
  uint32_t sequences = 1;     ///< at most, in each pack
  uint32_t predictions = 76;  ///< of masked tokens, at most, in each pack; 0: none are predicted
};

/// What the losses of a step are averaged over, each by one division, by the number over all micro-batches
/// and replicas.
enum class PackedAverage : uint8_t {
  token,     ///< all predictions alike
  sequence,  ///< the predictions of a sequence first, then sequences: as if each sequence were a sample
  pack,      ///< the predictions of a pack first, then packs: as in Graphcore's submissions to MLPerf
};
/// "token", "sequence", "pack"; the function from a name throws UsageError that lists them.
std::string_view name_of(PackedAverage average);
PackedAverage packed_average_named(std::string_view name);

struct BertOptions {
  PackedAverage average = PackedAverage::token;
  /// Number of the step, u32, if it drops out; without it there is no dropout.
  std::optional<Value> step = {};
  uint64_t seed = 0;     ///< of dropout
  Numbers numbers = {};  ///< types of parameters and products; losses are FP32
  /// The logits of masked tokens are computed in this many equal slices of the predictions, one after the
  /// other, so that memory has those of one slice. Then there is no Bert::masked_lm_logits.
  uint32_t head_slices = 1;
  /// Patterns of sparse weights of the encoder's products, by their names ("bert.encoder.layer.0.….weight").
  std::map<std::string, Pattern> patterns = {};
  /// The stage of each layer of the encoder, not falling; empty: there are no stages. Stage 0 has the
  /// embeddings too. The prediction of masked tokens, which shares their table, is a stage after the last
  /// layer's, on the chips of stage 0.
  std::vector<uint32_t> layer_stages = {};
  /// The stage of the feed-forward part of each layer, where layer_stages has that of its attention; empty:
  /// layers are whole. Parts on different stages are functions of their own, which draw other dropout masks.
  std::vector<uint32_t> feed_forward_stages = {};
  /// Whether the prediction of masked tokens is in the last layer's stage, which then lies on the chips of
  /// stage 0, instead of a stage of its own.
  bool head_with_last_layer = false;
  bool recompute_layers = false;  ///< see Call::recompute
  bool dynamic = false;           ///< whether these patterns may change, with room for as many blocks
};

/// Values of a model, whose parameters have the names of Hugging Face's BertForPreTraining.
struct Bert {
  Value hidden;                ///< last hidden states [packs, tokens, hidden]
  Value pooled;                ///< of the first token of each sequence: [packs · sequences, hidden]
  Value next_sentence_logits;  ///< [packs · sequences, 2]
  std::optional<Value> masked_lm_logits = {};  ///< [packs · predictions, vocabulary]
  std::optional<Value> masked_lm_loss = {};    ///< if there are predictions
  Value next_sentence_loss;
  Value loss;  ///< the sum of both
};

/// Adds a model with its losses, and as inputs, all u32:
/// - input_ids, token_type_ids, position_ids, sequence_ids [packs, tokens]: tokens attend to those with the
///   same sequence id, from 1; padding has the id 0. Positions restart at 0 in each sequence.
/// - masked_lm_positions, masked_lm_labels [packs, predictions]: places in the pack, and tokens; the label
///   kIgnoredLabel if there are fewer.
/// - cls_positions, next_sentence_labels [packs, sequences]: the place of each sequence's first token, and 0
///   or 1; the label kIgnoredLabel if there are fewer.
///
/// Equal layers are one function, unless their patterns may change. Throws UsageError for sizes that do not
/// fit, and for patterns of other weights.
Bert bert_for_pretraining(Graph& graph, const BertConfig& config, const BertBatch& batch,
                          const BertOptions& options = {});

}  // namespace tessera::graph
