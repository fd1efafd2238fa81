// Reading graphs from a file's content.
#pragma once

#include <tessera/graph_file.h>

#include "io/source.h"

namespace tessera::graph {

GraphFile load_graphs(const io::Source& source);

}  // namespace tessera::graph
