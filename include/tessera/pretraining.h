// Pre-training of BERT from text: files of tokens, pairs of sentences, packed batches with masked tokens, and
// the training loop.
#pragma once

#include <tessera/bert.h>
#include <tessera/packing.h>
#include <tessera/training.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// Tokens with a meaning of their own: they are never masked, and never stand in for a masked token.
struct SpecialTokens {
  uint32_t pad = 0;
  uint32_t cls = 101;
  uint32_t sep = 102;
  uint32_t mask = 103;

  bool contains(uint32_t token) const {
    return token == pad || token == cls || token == sep || token == mask;
  }
  bool operator==(const SpecialTokens&) const = default;
};

/// Documents of sentences of tokens.
struct TokenText {
  std::string name;
  uint32_t vocabulary = 0;  ///< number of tokens that there are
  SpecialTokens special = {};
  std::vector<uint32_t> tokens = {};      ///< of all sentences, one after the other
  std::vector<uint64_t> sentences = {0};  ///< sentence i has the tokens sentences[i] to sentences[i + 1] − 1
  std::vector<uint64_t> documents = {
      0};  ///< document i has the sentences documents[i] to documents[i + 1] − 1

  uint64_t count() const { return documents.size() - 1; }  ///< of documents
};

/// Throws Error, naming text and place, for tokens beyond the vocabulary, special tokens that are equal or
/// beyond it, empty sentences and documents, and limits that do not fit the tokens.
void check(const TokenText& text);

/// Reads a file of tokens, as Python's `tessera.text` and write_tokens() write it (docs/packing-bert.md).
/// Throws Error, naming the file, if it is malformed or its text does not pass check().
TokenText read_tokens(const std::string& path);
/// Writes one; an existing file is only replaced by a complete one. Throws as check() does.
void write_tokens(const std::string& path, const TokenText& text);

/// Text by Zipf's law: the token of rank r has a probability in proportion to 1 / (r + 1), and the sentences
/// of a document prefer tokens of its own.
struct SyntheticText {
  uint32_t vocabulary = 2000;
  uint32_t documents = 1000;
  uint64_t seed = 0;
};
TokenText synthetic_text(const SyntheticText& settings = {});

/// Text for training, and text that is held out.
struct TextSplit {
  std::shared_ptr<const TokenText> train;
  std::shared_ptr<const TokenText> held_out;
};
/// Throws as check() of both texts does, UsageError if one is missing, and Error if their vocabularies or
/// special tokens differ.
void check(const TextSplit& split);
/// Documents of a text at random: round(fraction × documents), and at least 2, are held out. Throws Error if
/// that leaves fewer than 2.
TextSplit split_text(const TokenText& text, double fraction, uint64_t seed);
/// A file of tokens, split so, or a folder with train.safetensors and test.safetensors. Throws Error also if
/// their vocabularies or special tokens differ.
TextSplit load_text(const std::string& path, double fraction, uint64_t seed);

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
  uint64_t tokens = 0;                                                              ///< without padding
  uint64_t sequences = 0;    ///< without those that are absent
  uint64_t predictions = 0;  ///< without those that are absent
  uint64_t packs = 0;        ///< without those that are empty

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
  /// Throws UsageError for a length or number out of range, Error if the text has fewer than two documents.
  PretrainingData(std::shared_ptr<const TokenText> text, const SequenceSettings& settings);
  ~PretrainingData();
  PretrainingData(PretrainingData&&) noexcept;
  PretrainingData& operator=(PretrainingData&&) noexcept;

  const SequenceSettings& settings() const;
  uint64_t sequences() const;
  uint64_t tokens() const;  ///< of all sequences
  const pack::Packing& packing() const;
  /// Of a batch of packs, with room for the pack with the most sequences and that with the most predictions,
  /// at most ⌊0.15 · length⌋ + sequences.
  graph::BertBatch shape(uint32_t packs) const;

  /// Packs `first`, first + 1, … of an epoch; what is beyond its last pack is padding. Throws UsageError if
  /// the first one is.
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

/// How BERT is pre-trained. The batch of LearningSettings is not used; `validation` is the fraction of
/// documents that load_text() holds out.
struct PretrainingSettings : LearningSettings {
  PretrainingSettings();

  graph::BertConfig config = graph::BertConfig::named("tiny");  ///< with the vocabulary of the text
  std::vector<PretrainingPhase> phases = {{}};
  bool packed = true;         ///< see SequenceSettings
  uint32_t max_per_pack = 0;  ///< see SequenceSettings
  graph::PackedAverage average = graph::PackedAverage::token;
  std::string numbers = "fp32";                  ///< see graph::numbers_named()
  std::optional<graph::Rounding> rounding = {};  ///< instead of the rounding that the numbers have
  uint32_t micro_batches = 1;                    ///< into which the packs of a step are divided
  /// Steps between evaluations of the text that is held out; 0: an epoch of the first phase.
  uint64_t evaluate_every = 0;
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
  /// Throws UsageError for settings that are out of range or do not fit the text. `threads` and
  /// `only_estimates`: see Trainer.
  BertTrainer(const PretrainingSettings& settings, const TextSplit& text, const Machine& machine,
              uint32_t threads = 0, bool only_estimates = false);
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

  /// See graph::Session: parameters alone, as Hugging Face's files have them.
  void load_parameters(const std::string& path);
  void save_parameters(const std::string& path) const;

 private:
  std::unique_ptr<train::BertTrainerImpl> impl_;
};

}  // namespace tessera
