// Linear layers by structure, and training steps of a network with such a layer, as cells.
#pragma once

#include <tessera/layers.h>

#include <cstdint>
#include <string>

#include "studies/paper/study.h"

namespace tessera::studies::butterfly {

/// A layer with FP32 activations.
struct LayerCase {
  graph::LayerOptions options;
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  uint32_t batch = 0;
  /// Number of classes of a dense layer after it: the case is a training step, by SGD with momentum, of the
  /// layer with bias and ReLU, the dense layer and cross-entropy. 0: the forward product of the layer alone.
  uint32_t classes = 0;
};

/// Number of inputs and of hidden features of the network of tables 4 and 5.
inline constexpr uint32_t kPublishedFeatures = 1024;

/// A training step of the network of tables 4 and 5: 50 images, 10 classes.
LayerCase published_step(const graph::LayerOptions& options);

/// "butterfly", on modelled machines with its form: "butterfly, unfused".
std::string name_of(const LayerCase& what, const machine::Machine& machine);

/// Plans, compiles and estimates the layer, or on a host measures it. Enters "seconds", "parameters" (of the
/// whole network, biases included), and on tiles "cycles", the program's size and the transfers of inputs and
/// outputs. A layer of few operations is executed and compared with the merged form in float64 if the setting
/// asks for it.
Result run_layer(const LayerCase& what, const Setting& setting);

}  // namespace tessera::studies::butterfly
