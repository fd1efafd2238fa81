// Training on packs: how much faster it is than on padded sequences.
#pragma once

#include "studies/paper/study.h"

namespace tessera::studies::packing {

/// Steps of BERT on packs of Wikipedia's lengths and on padded sequences, measured on the host: the realised
/// speed-up beside the packing factor, which attention, losses and other work per sequence reduce.
Section training_section();

}  // namespace tessera::studies::packing
