// The page of one run of a network: its time by phase and operation, its memory by purpose and tile, its
// graph.
#pragma once

#include <tessera/graph.h>
#include <tessera/inspect.h>

#include <cstdint>
#include <string>
#include <vector>

#include "report/html.h"
#include "report/page.h"
#include "report/table.h"

namespace tessera::report {

/// A weight of a model, and whether it is sparse. Only those of its zeros' properties that the table shows
/// must be set; an unknown density or time of the sparse product is NaN.
struct LayerRow {
  std::string name;
  uint32_t rows = 0;  ///< of the layer's input
  Zeros zeros;
  bool is_sparse = false;
  std::string why_dense = {};
  uint64_t copy_bytes = 0;  ///< of an additional copy, if other operations use the weight; otherwise 0
};
Table layers_table(const std::vector<LayerRow>& layers);

/// Times by kind of operation; `time` is the heading of the times: "measured".
Table kinds_table(const graph::RunCost& cost, const std::string& time);

/// `title` names the graph, and `machine` the machine for which it was lowered. The page has a table of
/// `layers` if there are some.
std::string network_page(const graph::Graph& graph, const graph::RunCost& cost, const std::string& title,
                         const std::string& machine, const std::vector<LayerRow>& layers = {});

/// Name of a run's transfers from and to the host.
inline constexpr const char* kHostTransfers = "transfers from and to the host";
KeyFigure host_io_figure(const graph::HostIoCost& transfers);

/// Charts for other pages: the operations that take longest, by phase, and the memory of each tile by
/// purpose.
Html time_chart(const graph::RunCost& cost);
Html tiles_chart(const graph::RunCost& cost);

}  // namespace tessera::report
