// Joins operations that a machine runs in one superstep.
#pragma once

#include <tessera/model.h>

namespace tessera::model {

/// Activations of products become part of them, and so do ReLU's gradients of their input gradients.
void fuse_epilogues(Graph& graph);

}  // namespace tessera::model
