// Charts of the activity of spiking networks.
#pragma once

#include <tessera/training.h>

#include "report/html.h"

namespace tessera::report {

/// Charts, by layer over the epochs, of the fractions of neurons that fire and that are listed.
Html activity_charts(const TrainingResult& result);

/// The spikes of inputs and layers, and the readout's potentials.
Html raster_of(const SpikingTraces& traces);

}  // namespace tessera::report
