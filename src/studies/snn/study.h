// `tessera reproduce snn`: "Harnessing Manycore Processors with Distributed Memory for Accelerated Training
// of Sparse and Recurrent Models" (Finkbeiner et al. 2023), which trains spiking networks with lists of
// spikes on IPUs.
#pragma once

#include <span>

#include "studies/paper/study.h"

namespace tessera::studies::snn {

const Paper& paper();

/// The tables that are committed with this study, generated from published/.
extern const std::span<const base::EmbeddedFile> kGains;

Section size();   ///< throughput over the size of the network
Section batch();  ///< throughput over the batch
Section steps();  ///< throughput of long sequences over the number of layers
Section tiles();  ///< throughput over the neurons per tile
Section chips();  ///< throughput of networks that grow with the chips
Section dense();  ///< compared with dense products on the same machine
// Sections on the paper's open questions, by training on hosts.
Section overflow();    ///< lists far too short for the neurons that pass a gradient
Section surrogates();  ///< surrogate gradients
Section depth();       ///< hidden layers

}  // namespace tessera::studies::snn
