// The graphs of a multilayer perceptron: a training step, evaluation, and dense gradients.
#pragma once

#include <tessera/gradients.h>
#include <tessera/training_settings.h>

#include <string>
#include <vector>

namespace tessera::train {

// Names of inputs and outputs.
inline constexpr const char* kImages = "images";
inline constexpr const char* kLabels = "labels";
inline constexpr const char* kDropoutStep = "dropout_step";
inline constexpr const char* kLogits = "logits";
inline constexpr const char* kLoss = "loss";

std::string weight_name(size_t layer);
std::string gradient_name(size_t layer);

/// The options of training a graph: optimizer, clipping and groups.
graph::TrainingOptions training_options(const LearningSettings& settings,
                                        std::vector<graph::ParameterGroup> groups);

/// Sets how a step is divided and where its values lie, from the settings; the options already contain
/// groups.
void set_placement(graph::TrainingOptions& options, const PlacementSettings& settings);

/// Random initial patterns of the hidden layers; empty if they are dense.
std::vector<Pattern> initial_patterns(const TrainingSettings& settings);

/// A training step. Outputs are the loss and, without micro-batches, the logits.
graph::Graph training_graph(const TrainingSettings& settings, const std::vector<Pattern>& patterns);

/// Logits of `rows` images, without dropout. Parameters have the names and shapes of the training graph.
graph::Graph evaluation_graph(const TrainingSettings& settings, const std::vector<Pattern>& patterns,
                              uint32_t rows);

/// A graph of the gradients of the hidden layers' weights as dense matrices, summed over micro-batches. All
/// weights are dense; with zeros outside the patterns the network is the same.
graph::Graph gradient_graph(const TrainingSettings& settings);

/// Those of the arrays that a graph takes, which depend on optimizer, dropout and micro-batches.
std::vector<graph::Tensor> taken_by(const graph::Graph& graph, std::vector<graph::Tensor> arrays);

}  // namespace tessera::train
