// What spiking networks did: charts.
#pragma once

#include <tessera/training.h>

#include "report/html.h"

namespace tessera::report {

/// Fractions of neurons that fire and that are listed, by layer, over the epochs.
Html activity_charts(const TrainingResult& result);

/// The spikes of inputs and layers, and the readout's potentials.
Html raster_of(const SpikingTraces& traces);

}  // namespace tessera::report
