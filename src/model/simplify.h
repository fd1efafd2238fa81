// Transforms that leave a graph's results as they are.
#pragma once

#include <tessera/model.h>

namespace tessera::model {

/// Removes operations whose results nothing uses, such as the gradient of a network's input; activations of
/// products become part of them, and so do ReLU's gradients of their input gradients. The same in functions.
void simplify(Graph& graph);

}  // namespace tessera::model
