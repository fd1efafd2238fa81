// The graphs of pre-training: a step, and evaluation.
#pragma once

#include <tessera/pretraining.h>

namespace tessera::train {

// Names of outputs besides the loss (kLoss).
inline constexpr const char* kMaskedLmLoss = "masked_lm_loss";
inline constexpr const char* kNextSentenceLoss = "next_sentence_loss";

/// A step of a batch, of which each micro-batch has an equal part.
graph::Graph pretraining_graph(const PretrainingSettings& settings, graph::BertBatch batch);

/// The losses of a batch, without dropout.
graph::Graph pretraining_evaluation_graph(const PretrainingSettings& settings, const graph::BertBatch& batch);

}  // namespace tessera::train
