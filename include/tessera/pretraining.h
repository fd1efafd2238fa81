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
  uint32_t length = 128;  ///< length of packs, and maximum length of sequences
  bool packed = true;  ///< whether the optimal planner packs sequences; otherwise each sequence is padded in
                       ///< a pack of its own
  uint32_t max_per_pack = 0;  ///< maximum number of sequences in a pack; 0: any number
  uint64_t seed = 0;
};

/// Number of tokens that are predicted in a sequence: 15 % of the tokens, at least 1.
uint32_t predictions_of(uint32_t length);

/// A batch: the input arrays of bert_for_pretraining().
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
/// the tokens are to be predicted, different ones in each epoch: 80 % of these are replaced by [MASK], 10 %
/// by a random token. An epoch has each sequence once; the sequences that share a pack change from epoch to
/// epoch.
///
/// All random choices are functions of the seed, and of document, epoch, sequence and token: a batch is
/// determined by its epoch and its place there.
class PretrainingData {
 public:
  /// Throws UsageError for a length or number out of range and for a missing text, Error if the text does not
  /// pass require_valid() or has fewer than two documents.
  PretrainingData(std::shared_ptr<const TokenText> text, const SequenceSettings& settings);
  ~PretrainingData();
  PretrainingData(PretrainingData&&) noexcept;
  PretrainingData& operator=(PretrainingData&&) noexcept;

  const SequenceSettings& settings() const;
  uint64_t sequences() const;
  uint64_t tokens() const;  ///< number of tokens in all sequences
  const pack::Packing& packing() const;
  /// The sizes of a batch of packs: large enough for the pack with the most sequences and for the pack with
  /// the most predictions, at most ⌊0.15 · length⌋ + sequences. Throws UsageError for 0 packs.
  graph::BertBatch shape(uint32_t packs) const;

  /// Packs `first`, first + 1, … of an epoch; packs beyond the epoch's last one are padding. Throws
  /// UsageError if pack `first` is beyond it, and for 0 packs. Several threads may call it at once, also for
  /// several epochs.
  PretrainingBatch batch(uint32_t epoch, uint64_t first, uint32_t packs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A part of a training in which all packs have one length.
struct PretrainingPhase {
  uint32_t length = 128;
  uint32_t packs = 32;  ///< packs per step
  uint64_t steps = 0;   ///< number of steps; 0: as many as LearningSettings::epochs take
};

/// How BERT is pre-trained. The batch of LearningSettings is not used: the packs of a step are divided into
/// micro-batches and among replicas. `validation` is the fraction of documents that load_text() holds out.
struct PretrainingSettings : LearningSettings, PlacementSettings {
  PretrainingSettings();

  /// The model; its vocabulary is set to the text's.
  graph::BertConfig config = graph::BertConfig::named("tiny");
  std::vector<PretrainingPhase> phases = {{}};
  bool packed = true;         ///< see SequenceSettings
  uint32_t max_per_pack = 0;  ///< see SequenceSettings
  graph::PackedAverage average = graph::PackedAverage::token;
  std::string numbers = "fp32";                  ///< see graph::numbers_named()
  std::optional<graph::Rounding> rounding = {};  ///< instead of the rounding in `numbers`
  graph::Roundings roundings = {};               ///< roundings of some stores, instead of `rounding`
  std::optional<Type> partials = {};             ///< instead of the type of partial sums in `numbers`
  /// Instead of the type of sums of gradients in `numbers`; see graph::TrainingOptions::sums.
  std::optional<Type> sums = {};
  /// Instead of the loss scale in `numbers`. With a scale that may change, a step whose loss and gradients
  /// are not finite is left out, also from means, unless the scale has fallen to 1.
  std::optional<graph::LossScale> loss_scale = {};
  /// Maximum number of slices in which the logits of the masked tokens of a micro-batch are computed one
  /// after the other; the number used divides them equally. See BertOptions::head_slices.
  uint32_t head_slices = 1;
  /// Number of stages among which the layers are divided, each on separate chips; see
  /// BertOptions::layer_stages.
  uint32_t stages = 1;
  /// Number of layers of each stage; empty: the layers are divided equally.
  std::vector<uint32_t> stage_layers = {};
  /// Number of feed-forward parts of layers in each stage; stage_layers then counts attention parts. Empty:
  /// layers are not split. Layers follow one another through the stages.
  std::vector<uint32_t> stage_feed_forwards = {};
  /// Number of the last layers, or attention parts, that are in the stage of the prediction of masked tokens,
  /// in addition to stage_layers; and the same of feed-forward parts, in addition to stage_feed_forwards.
  uint32_t head_layers = 0;
  uint32_t head_feed_forwards = 0;
  graph::PipelineKind pipeline = graph::PipelineKind::sequential;  ///< schedule of several stages
  /// In a pipeline with several micro-batches in flight, the smallest number of elements for which values
  /// that stages keep for later passes are in streaming memory; see graph::Pipeline::offload_from.
  std::optional<uint64_t> offload_activations_from = {};
  /// Number of steps between evaluations of the held-out text; 0: as many as an epoch of the first phase has.
  uint64_t evaluate_every = 0;
  /// Whether a trainer for estimates costs the first batch of each phase, in whose packs the tiles of a
  /// modelled machine skip attention between sequences; otherwise it costs packs of one sequence each.
  bool estimate_packs = false;
};

/// Mean losses of the steps since the last evaluation, and of all sequences of the held-out text.
struct PretrainingEvaluation {
  uint64_t step = 0;       ///< finished steps
  uint64_t sequences = 0;  ///< trained with so far
  double loss = 0;         ///< mean loss of steps
  double held_out_loss = 0;
  double masked_lm_loss = 0;      ///< loss of masked tokens, held out
  double next_sentence_loss = 0;  ///< held out
  double seconds = 0;             ///< time of steps and evaluation; 0: an earlier process made the evaluation
};

struct PretrainingProgress {
  uint64_t step = 0;  ///< finished steps
  uint64_t steps = 0;
  uint32_t epoch = 1;                                ///< epoch of the phase, from 1
  double loss = 0;                                   ///< mean loss since the last evaluation
  double step_loss = 0;                              ///< loss of the last step alone
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
  double step_seconds = 0;  ///< mean time of a step; on a tiled machine, the time that the model predicts
  double tokens_per_second = 0;     ///< rate during steps, without padding
  double sequences_per_second = 0;  ///< rate during steps
  uint64_t cycles = 0;              ///< cycles of all steps on a tiled machine
  double seconds = 0;               ///< time on the host
};

namespace train {
struct BertTrainerImpl;
}

/// BERT with its text, on a machine. With the same settings, text, tiles and instruction set, training gives
/// the same bits, with any number of threads, and also if it is stopped and resumed.
class BertTrainer {
 public:
  /// Throws UsageError for settings that are out of range or do not fit the text. `threads`: see Trainer.
  /// With a communicator, its ranks divide the replicas among them; on a host, if there are more ranks than
  /// replicas, ranks also divide the stages of each replica. They train as one process does, bit for bit: all
  /// must have the same settings, text, machine and checkpoints, and make the same calls. The first rank
  /// writes files, and training stops on all ranks if progress() stops it on one.
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
  uint64_t evaluations(size_t phase = 0) const;         ///< evaluations in a phase
  uint64_t evaluation_batches(size_t phase = 0) const;  ///< batches of each evaluation
  /// The sequences of a phase.
  const PretrainingData& training_data(size_t phase = 0) const;
  uint64_t parameters() const;

  /// Cost of a step of a phase, and of a batch of evaluation.
  const graph::RunCost& step_cost(size_t phase = 0) const;
  const graph::RunCost& evaluation_cost(size_t phase = 0) const;
  /// The graph of a step of a phase, after the transforms that sessions apply.
  const graph::Graph& graph(size_t phase = 0) const;

  /// See Trainer. resume() and train() throw Error before the first step if the machine's memory does not
  /// suffice for a phase. If a phase cannot begin for another reason, the trainer stays at the end of the
  /// phase before.
  void resume(const std::string& checkpoint, bool allow_different_bits = false);
  uint64_t step() const;  ///< finished steps
  PretrainingResult train(const PretrainingRun& run = {});
  /// Evaluations of train() so far, including evaluations before a resumed checkpoint.
  const std::vector<PretrainingEvaluation>& history() const;

  /// Evaluates the held-out text, in the phase of the last step, in addition to the evaluations of train(),
  /// whose results do not depend on this call. The mean loss of steps is 0 if there was no step since the
  /// last evaluation of train().
  PretrainingEvaluation evaluate();
  /// Writes a checkpoint, as train() does when it is stopped. After a step that failed when it had begun, or
  /// whose loss is not finite and that no loss scale leaves out, or an evaluation in train() that failed,
  /// save() and train() throw Error until a checkpoint is resumed.
  void save(const std::string& checkpoint);

  /// See graph::Session: load and save parameters only, in the form of Hugging Face's files.
  void load_parameters(const std::string& path);
  void save_parameters(const std::string& path) const;
  /// See graph::Session::get(); `name` is a parameter of graph().
  std::vector<float> parameter(const std::string& name) const;

 private:
  explicit BertTrainer(std::unique_ptr<train::BertTrainerImpl> impl);

  std::unique_ptr<train::BertTrainerImpl> impl_;
};

}  // namespace tessera
