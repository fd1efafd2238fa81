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

  /// "tiny" (2 layers of hidden size 128), "mini" (4 of 256), "small" (4 of 512), "medium" (8 of 512), "base"
  /// (12 of 768) and "large" (24 of 1,024), as published (Devlin et al. 2019; Turc et al. 2019). Throws
  /// UsageError for another name.
  static BertConfig named(std::string_view name);
};

/// The sizes of a batch.
struct BertBatch {
  uint32_t packs = 1;
  uint32_t tokens = 512;   ///< tokens of each pack
  uint32_t sequences = 1;  ///< maximum number of sequences in each pack
  /// Maximum number of masked tokens to predict in each pack; 0: none are predicted.
  uint32_t predictions = 76;
};

/// The unit over which the losses of a step are averaged. Each loss is divided once, by the number of these
/// units in all micro-batches and replicas.
enum class PackedAverage : uint8_t {
  token,     ///< all predictions count alike
  sequence,  ///< first over the predictions of a sequence, then over sequences: as if each sequence were a
             ///< sample
  pack,  ///< first over the predictions of a pack, then over packs: as in Graphcore's submissions to MLPerf
};
/// "token", "sequence", "pack"; packed_average_named() throws UsageError, listing the names, for any other
/// name.
std::string_view name_of(PackedAverage average);
PackedAverage packed_average_named(std::string_view name);

struct BertOptions {
  PackedAverage average = PackedAverage::token;
  /// Number of the step, u32, for dropout; without it there is no dropout.
  std::optional<Value> step = {};
  uint64_t seed = 0;     ///< seed of dropout masks
  Numbers numbers = {};  ///< types of parameters and products; losses are FP32
  /// Number of equal slices of the predictions for which the logits of masked tokens are computed one after
  /// the other, so that memory holds the logits of one slice only. With several slices there is no
  /// Bert::masked_lm_logits.
  uint32_t head_slices = 1;
  /// Patterns of the encoder's sparse weights, by the weights' names ("bert.encoder.layer.0.….weight").
  std::map<std::string, Pattern> patterns = {};
  /// The stage of each layer of the encoder, in non-decreasing order; empty: there are no stages. Stage 0
  /// also has the embeddings. The prediction of masked tokens, which shares the table of embeddings, is a
  /// stage after the last layer's stage, on the chips of stage 0.
  std::vector<uint32_t> layer_stages = {};
  /// The stage of the feed-forward part of each layer; layer_stages then has the stage of its attention part.
  /// Empty: layers are not split. Parts on different stages are separate functions, which draw other dropout
  /// masks.
  std::vector<uint32_t> feed_forward_stages = {};
  /// Whether the prediction of masked tokens is part of the last layer's stage, which then lies on the chips
  /// of stage 0, instead of a separate stage.
  bool head_with_last_layer = false;
  bool recompute_layers = false;  ///< see Call::recompute
  bool dynamic = false;  ///< whether these patterns may change, with their numbers of blocks as capacity
};

/// The values of a model. Its parameters have the names of Hugging Face's BertForPreTraining.
struct Bert {
  Value hidden;  ///< last hidden states [packs, tokens, hidden]
  Value pooled;  ///< the pooled state of the first token of each sequence: [packs · sequences, hidden]
  Value next_sentence_logits;                  ///< [packs · sequences, 2]
  std::optional<Value> masked_lm_logits = {};  ///< [packs · predictions, vocabulary]
  std::optional<Value> masked_lm_loss = {};    ///< none without predictions
  Value next_sentence_loss;
  Value loss;  ///< the sum of both losses
};

/// Adds a model with its losses, and these inputs, all u32:
/// - input_ids, token_type_ids, position_ids, sequence_ids [packs, tokens]: tokens attend to tokens with the
///   same sequence id. Sequence ids count from 1; padding has id 0. Positions restart at 0 in each sequence.
/// - masked_lm_positions, masked_lm_labels [packs, predictions]: the positions of masked tokens in the pack,
///   and the tokens to predict; unused entries have the label kIgnoredLabel.
/// - cls_positions, next_sentence_labels [packs, sequences]: the position of each sequence's first token, and
///   its label, 0 or 1; unused entries have the label kIgnoredLabel.
///
/// Equal layers call one function, unless their patterns may change. Throws UsageError for sizes that do not
/// fit, and for patterns of other weights.
Bert bert_for_pretraining(Graph& graph, const BertConfig& config, const BertBatch& batch,
                          const BertOptions& options = {});

}  // namespace tessera::graph
