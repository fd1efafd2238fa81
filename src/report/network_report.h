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

/// A weight of a model, and whether it is sparse. Of its zeros only what the table shows has to be known;
/// density and the sparse product's time are NaN if they are not.
struct LayerRow {
  std::string name;
  uint32_t rows = 0;  ///< of the layer's input
  Zeros zeros;
  bool is_sparse = false;
  std::string why_dense = {};
  uint64_t copy_bytes = 0;  ///< of a form of its own, where other operations take the weight too; else 0
};
Table layers_table(const std::vector<LayerRow>& layers);

/// Times by kind of operation, in words for that time: "measured".
Table kinds_table(const graph::RunCost& cost, const std::string& time);

/// `title` names the graph, and `machine` the machine for which it was lowered. The page has a table of
/// `layers` if there are some.
std::string network_page(const graph::Graph& graph, const graph::RunCost& cost, const std::string& title,
                         const std::string& machine, const std::vector<LayerRow>& layers = {});

/// What a run's transfers from and to the host take.
inline constexpr const char* kHostTransfers = "transfers from and to the host";
KeyFigure host_io_figure(const graph::HostIoCost& transfers);

/// Charts for other pages: the operations that take longest, by phase, and the memory of each tile by
/// purpose.
Html time_chart(const graph::RunCost& cost);
Html tiles_chart(const graph::RunCost& cost);

}  // namespace tessera::report
