// Pre-training of BERT from text: pairs of sentences, packed batches with masked tokens, and the training
// loop.
#pragma once

#include <tessera/bert.h>
#include <tessera/communicator.h>
#include <tessera/gradients.h>
#include <tessera/packing.h>
#include <tessera/token_text.h>
#include <tessera/training_settings.h>
#include <tessera/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// How text becomes packs of sequences [CLS] A [SEP] B [SEP].
struct SequenceSettings {
  uint32_t length = 128;      ///< of packs, and at most of sequences
  bool packed = true;         ///< by the optimal planner; otherwise each sequence is alone, and padded
  uint32_t max_per_pack = 0;  ///< sequences in a pack, at most; 0: any
  uint64_t seed = 0;
};

/// Number of tokens that are predicted in a sequence: 15 %, at least 1.
uint32_t predictions_of(uint32_t length);

/// Arrays of bert_for_pretraining().
struct PretrainingBatch {
  using Array = std::vector<uint32_t>;

  graph::BertBatch shape;
  Array input_ids = {}, token_type_ids = {}, position_ids = {}, sequence_ids = {};  ///< [packs, tokens]
  Array masked_lm_positions = {}, masked_lm_labels = {};                            ///< [packs, predictions]
  Array cls_positions = {}, next_sentence_labels = {};                              ///< [packs, sequences]
  uint64_t tokens = 0, sequences = 0, predictions = 0, packs = 0;                   ///< without padding

  /// All arrays, under the names of the model's inputs.
  std::vector<graph::Tensor> arrays();
};

/// The sequences of a text and their packs. A is the beginning of a piece of a document; B is what follows
/// it, or for half of the sequences, with label 1, comes from another document (Devlin et al. 2019). 15 % of
/// the tokens are to be predicted, new ones in each epoch: 80 % of them are replaced by [MASK], 10 % by a
/// random token. An epoch has each sequence once, in a pack with others that change from epoch to epoch.
///
/// All random choices are functions of the seed, and of document, epoch, sequence and token: a batch follows
/// from its epoch and place alone.
class PretrainingData {
 public:
  /// Throws UsageError for a length or number out of range and without a text, Error if the text does not
  /// pass require_valid() or has fewer than two documents.
  PretrainingData(std::shared_ptr<const TokenText> text, const SequenceSettings& settings);
  ~PretrainingData();
  PretrainingData(PretrainingData&&) noexcept;
  PretrainingData& operator=(PretrainingData&&) noexcept;

  const SequenceSettings& settings() const;
  uint64_t sequences() const;
  uint64_t tokens() const;  ///< of all sequences
  const pack::Packing& packing() const;
  /// Of a batch of packs, with room for the pack with the most sequences and that with the most predictions,
  /// at most ⌊0.15 · length⌋ + sequences. Throws UsageError for 0 packs.
  graph::BertBatch shape(uint32_t packs) const;

  /// Packs `first`, first + 1, … of an epoch; what is beyond its last pack is padding. Throws UsageError if
  /// the first one is, and for 0 packs. Several threads may call it at once, also for several epochs.
  PretrainingBatch batch(uint32_t epoch, uint64_t first, uint32_t packs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A part of a training in which packs have one length.
struct PretrainingPhase {
  uint32_t length = 128;
  uint32_t packs = 32;  ///< of a step
  uint64_t steps = 0;   ///< 0: as many as LearningSettings::epochs take
};

/// How BERT is pre-trained. The batch of LearningSettings is not used: the packs of a step are divided into
/// micro-batches and among replicas. `validation` is the fraction of documents that load_text() holds out.
struct PretrainingSettings : LearningSettings, PlacementSettings {
  PretrainingSettings();

  graph::BertConfig config = graph::BertConfig::named("tiny");  ///< with the vocabulary of the text
  std::vector<PretrainingPhase> phases = {{}};
  bool packed = true;         ///< see SequenceSettings
  uint32_t max_per_pack = 0;  ///< see SequenceSettings
  graph::PackedAverage average = graph::PackedAverage::token;
  std::string numbers = "fp32";                  ///< see graph::numbers_named()
  std::optional<graph::Rounding> rounding = {};  ///< instead of the rounding that the numbers have
  graph::Roundings roundings = {};               ///< of some stores, instead of that
  std::optional<Type> partials = {};             ///< instead of the partial sums that they have
  /// Instead of the type of gradients' sums that the numbers have; see graph::TrainingOptions::sums.
  std::optional<Type> sums = {};
  /// Instead of the scale of the loss that the numbers have. With one that may change, a step whose loss and
  /// gradients are not finite is left out, also of means, unless the scale has come down to 1.
  std::optional<graph::LossScale> loss_scale = {};
  /// Slices, at most, in which the logits of the masked tokens of a micro-batch are computed one after the
  /// other: as many as divide them equally. See BertOptions::head_slices.
  uint32_t head_slices = 1;
  /// Stages among which the layers are divided, each on chips of its own; see BertOptions::layer_stages.
  uint32_t stages = 1;
  std::vector<uint32_t> stage_layers = {};  ///< layers of each stage; empty: they are divided equally
  /// Feed-forward parts of layers of each stage, of which stage_layers has the attention parts then; empty:
  /// layers are whole. Layers follow one another through the stages.
  std::vector<uint32_t> stage_feed_forwards = {};
  /// The last layers, or attention parts, that are in the stage of the prediction of masked tokens, beside
  /// stage_layers, and the last feed-forward parts beside stage_feed_forwards.
  uint32_t head_layers = 0;
  uint32_t head_feed_forwards = 0;
  graph::PipelineKind pipeline = graph::PipelineKind::sequential;  ///< if there are several stages
  /// Of a pipeline with several micro-batches in flight: what stages keep of them for later passes, of at
  /// least so many elements, is in streaming memory; see graph::Pipeline::offload_from.
  std::optional<uint64_t> offload_activations_from = {};
  /// Steps between evaluations of the text that is held out; 0: an epoch of the first phase.
  uint64_t evaluate_every = 0;
  /// Whether a trainer for estimates has the costs of the first batch of each phase, in whose packs the tiles
  /// of a modelled machine skip attention between sequences; otherwise those of packs of one sequence.
  bool estimate_packs = false;
};

/// Means since the last evaluation, and of all sequences of the text that is held out.
struct PretrainingEvaluation {
  uint64_t step = 0;       ///< finished steps
  uint64_t sequences = 0;  ///< trained with so far
  double loss = 0;         ///< of steps
  double held_out_loss = 0;
  double masked_lm_loss = 0;      ///< held out, of masked tokens
  double next_sentence_loss = 0;  ///< held out
  double seconds = 0;             ///< of steps and evaluation; 0: of an earlier process
};

struct PretrainingProgress {
  uint64_t step = 0;  ///< finished steps
  uint64_t steps = 0;
  uint32_t epoch = 1;                                ///< of the phase, from 1
  double loss = 0;                                   ///< mean since the last evaluation
  double step_loss = 0;                              ///< of the last step alone
  const PretrainingEvaluation* evaluated = nullptr;  ///< after an evaluation
};

struct PretrainingRun {
  /// File written after each evaluation, before each phase but the first, and when training is stopped.
  std::string checkpoint = {};
  /// Called after each step, and its evaluation if there is one; training stops if it returns false.
  std::function<bool(const PretrainingProgress&)> progress = {};
};

struct PretrainingResult {
  bool finished = false;
  uint64_t step = 0;       ///< finished steps
  uint64_t sequences = 0;  ///< trained with so far
  std::vector<PretrainingEvaluation> evaluations = {};
  // Figures of this process alone:
  uint64_t steps_run = 0;
  double step_seconds = 0;          ///< mean time of a step; on a tiled machine the model's
  double tokens_per_second = 0;     ///< of steps, without padding
  double sequences_per_second = 0;  ///< of steps
  uint64_t cycles = 0;              ///< of all steps on a tiled machine
  double seconds = 0;               ///< on the host
};

namespace train {
struct BertTrainerImpl;
}

/// BERT with its text, on a machine. With the same settings, text, tiles and instruction set, training gives
/// the same bits, on any number of threads and wherever it is stopped and resumed.
class BertTrainer {
 public:
  /// Throws UsageError for settings that are out of range or do not fit the text. `threads`: see Trainer.
  /// With a communicator, its ranks divide the replicas among them, and on a host more ranks than replicas
  /// the stages of each; they train as one process does, bit for bit: all have the same settings, text,
  /// machine and checkpoints, and make the same calls. The first rank writes files, and training stops on all
  /// if progress() stops it on one.
  BertTrainer(const PretrainingSettings& settings, const TextSplit& text, const Machine& machine,
              uint32_t threads = 0, const std::shared_ptr<Communicator>& communicator = {});
  /// See Trainer.
  static BertTrainer for_estimates(const PretrainingSettings& settings, const TextSplit& text,
                                   const Machine& machine, uint32_t threads = 0);
  ~BertTrainer();
  BertTrainer(BertTrainer&&) noexcept;
  BertTrainer& operator=(BertTrainer&&) noexcept;

  /// The settings, with the text's vocabulary and the steps of each phase.
  const PretrainingSettings& settings() const;
  /// All settings, by name, as one JSON object.
  const std::string& settings_json() const;
  uint64_t steps() const;
  uint64_t steps_per_epoch(size_t phase = 0) const;
  uint64_t evaluations(size_t phase = 0) const;         ///< in a phase
  uint64_t evaluation_batches(size_t phase = 0) const;  ///< batches of each of them
  /// The sequences of a phase.
  const PretrainingData& training_data(size_t phase = 0) const;
  const PretrainingData& held_out_data(size_t phase = 0) const;
  uint64_t parameters() const;

  /// Cost of a step of a phase, and of a batch of evaluation.
  const graph::RunCost& step_cost(size_t phase = 0) const;
  const graph::RunCost& evaluation_cost(size_t phase = 0) const;
  /// The graph of a step of a phase, as sessions transform it.
  const graph::Graph& graph(size_t phase = 0) const;

  /// See Trainer. Throw Error before the first step if the machine's memory does not suffice for a phase. If
  /// a phase cannot begin for another reason, the trainer stays at the end of the one before.
  void resume(const std::string& checkpoint, bool allow_different_bits = false);
  uint64_t step() const;  ///< finished steps
  PretrainingResult train(const PretrainingRun& run = {});
  /// Evaluations of train() so far, those before a resumed checkpoint included.
  const std::vector<PretrainingEvaluation>& history() const;

  /// Evaluates the text that is held out, in the phase of the last step, beside the evaluations of train():
  /// none of its results depend on it. The mean loss of steps is 0 if there are none since the last of these.
  PretrainingEvaluation evaluate();
  /// Writes a checkpoint, as train() does when it is stopped. Both throw Error after a step that failed, as
  /// its loss is not finite and no loss scale leaves it out, until a checkpoint is resumed.
  void save(const std::string& checkpoint);

  /// See graph::Session: parameters alone, as Hugging Face's files have them.
  void load_parameters(const std::string& path);
  void save_parameters(const std::string& path) const;
  /// See graph::Session::get(); those of graph().
  std::vector<float> parameter(const std::string& name) const;

 private:
  explicit BertTrainer(std::unique_ptr<train::BertTrainerImpl> impl);

  std::unique_ptr<train::BertTrainerImpl> impl_;
};

}  // namespace tessera
