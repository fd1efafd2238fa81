// The graphs of a multilayer perceptron: a training step, evaluation, and dense gradients.
#pragma once

#include <tessera/training.h>

#include <string>
#include <vector>

namespace tessera::train {

// Inputs and outputs.
inline constexpr const char* kImages = "images";
inline constexpr const char* kLabels = "labels";
inline constexpr const char* kDropoutStep = "dropout_step";
inline constexpr const char* kLogits = "logits";
inline constexpr const char* kLoss = "loss";

std::string weight_name(size_t layer);
std::string gradient_name(size_t layer);

/// Optimizer, clipping and groups.
graph::TrainingOptions training_options(const LearningSettings& settings,
                                        std::vector<graph::ParameterGroup> groups);

/// Of the hidden layers, at random; empty if they are dense.
std::vector<Pattern> initial_patterns(const TrainingSettings& settings);

/// A training step. Outputs are the loss and, without micro-batches, the logits.
graph::Graph training_graph(const TrainingSettings& settings, const std::vector<Pattern>& patterns);

/// Logits of `rows` images, without dropout. Parameters have the names and shapes of the training graph.
graph::Graph evaluation_graph(const TrainingSettings& settings, const std::vector<Pattern>& patterns,
                              uint32_t rows);

/// Gradients of the hidden layers' weights as dense matrices, summed over micro-batches. All weights are
/// dense; with zeros outside the patterns the network is the same.
graph::Graph gradient_graph(const TrainingSettings& settings);

/// Those arrays that a graph takes: which ones depends on optimizer, dropout and micro-batches.
std::vector<graph::Tensor> taken_by(const graph::Graph& graph, std::vector<graph::Tensor> arrays);

}  // namespace tessera::train
