// `tessera reproduce snn`: "Harnessing Manycore Processors with Distributed Memory for Accelerated Training
// of Sparse and Recurrent Models" (Finkbeiner et al. 2023), which trains spiking networks with lists of
// spikes on IPUs.
#pragma once

#include <span>

#include "studies/paper/study.h"

namespace tessera::studies::snn {

const Paper& paper();

/// The tables that are committed with this study, generated from published/.
extern const std::span<const PublishedFile> kGains;

Section size();   ///< throughput over the size of the network
Section batch();  ///< over the batch
Section steps();  ///< of long sequences, over the number of layers
Section tiles();  ///< over the neurons of a tile
Section chips();  ///< of networks that grow with the chips
Section dense();  ///< against dense products on the same machine
// The paper's open questions, by training on hosts.
Section overflow();    ///< lists that are far too short for what passes a gradient
Section surrogates();  ///< surrogate gradients
Section depth();       ///< hidden layers

}  // namespace tessera::studies::snn
