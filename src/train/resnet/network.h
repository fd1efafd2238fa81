// The graphs of training a residual network: a step, evaluation, and dense gradients.
#pragma once

#include <tessera/graph.h>
#include <tessera/resnet_training.h>

#include <cstdint>
#include <map>
#include <string>

#include "data/image_source.h"

namespace tessera::train {

using Patterns = std::map<std::string, Pattern>;

/// Images of a micro-batch of a replica.
uint32_t rows_of_part(const ResnetTrainingSettings& settings);

/// PyTorch's shapes of the weights of all convolutions, by name.
std::map<std::string, graph::Shape> kernels_of(const ResnetTrainingSettings& settings,
                                               const ImageFormat& images);
/// Random initial patterns of the sparse convolutions, by the names of their weights. Throws UsageError for a
/// density that leaves one without a block.
Patterns initial_patterns(const ResnetTrainingSettings& settings, const ImageFormat& images);

/// A training step. Outputs are the loss and, without micro-batches, the logits.
graph::Graph resnet_training_graph(const ResnetTrainingSettings& settings, const ImageFormat& images,
                                   const Patterns& patterns);
/// Logits of `rows` images, with the running statistics. Parameters have the names and shapes of the training
/// graph.
graph::Graph resnet_evaluation_graph(const ResnetTrainingSettings& settings, const ImageFormat& images,
                                     const Patterns& patterns, uint32_t rows);

std::string gradient_name(const std::string& weight);
/// The gradients of the weights that have patterns as dense FP32 matrices, summed over micro-batches. All
/// weights are dense; with zeros outside the patterns the network is the same. Images that are normalised
/// together, as in a micro-batch of several replicas, are one after another.
graph::Graph resnet_gradient_graph(const ResnetTrainingSettings& settings, const ImageFormat& images,
                                   const Patterns& patterns);

}  // namespace tessera::train
