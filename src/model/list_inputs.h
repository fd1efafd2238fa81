// Lists of spikes among the inputs of a graph, which kernels trust.
#pragma once

#include <tessera/model.h>

#include <vector>

#include "ops/spiking/spiking.h"

namespace tessera::model {

struct ListInputs {
  ValueId ids = 0;
  ValueId num = 0;
  ops::SpikeListRoom room;
};

std::vector<ListInputs> list_inputs(const Graph& graph);

/// Throws UsageError for lists that do not fit, or hold what no list can.
void check_lists(const Graph& graph, const ListInputs& lists, const std::vector<double>& ids,
                 const std::vector<double>& num);

}  // namespace tessera::model
